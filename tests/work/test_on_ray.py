"""Units on a cluster of this machine, whose nodes and workers are killed; addresses at which there is none."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from hotswap.errors import SettingError, UnsupportedError
from hotswap.work import Outcome, PerUnit, Setting, Unit, WorkerDiedError, do_all, on_ray
from hotswap.work.on_ray import OnRay, join
from tests.children import PATIENCE
from tests.work.nodes import add_nodes, cluster_of, kill_node, node_of
from tests.work.units import Notes, obeying


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as nodes:
        yield nodes


def wait_for(file: Path) -> int:
    """The process that has written the file, once it has."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(file.read_text())


def do(units: list[Unit], notes: Notes, stop: Callable[[], bool] = lambda: False) -> Outcome:
    with join(None, PerUnit(), None, notes.say) as joined:
        return do_all(units, OnRay(Setting(obeying(), 3), joined), notes, stop)


def test_a_worker_and_a_node_that_are_killed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "RETRIES", 2)
    worker, node = (Unit(name, ("be killed once", str(tmp_path / name))) for name in ("worker", "node"))
    raises, dies, well = (Unit(name, (name, str(tmp_path / name))) for name in ("raise", "die", "do well"))

    def kill() -> None:
        pids = [wait_for(tmp_path / name) for name in ("worker", "node")]
        os.kill(pids[0], signal.SIGKILL)
        kill_node(cluster, node_of(cluster, pids[1]))

    notes = Notes()
    with ThreadPoolExecutor(1) as aside:
        killed = aside.submit(kill)
        outcome = do([worker, node, raises, dies, well], notes)
        killed.result()
    add_nodes(cluster, 1)
    assert notes.results == dict.fromkeys(("worker", "node", "do well"), 30)
    assert outcome.finished == 3
    assert outcome.failed["raise"] == "ValueError: three is too many\nfor this one"
    assert isinstance(notes.errors["die"], WorkerDiedError)


def test_stopping_gives_units_up(cluster: Cluster, tmp_path: Path) -> None:
    notes = Notes()
    units = [Unit(name, ("wait", str(tmp_path / name))) for name in ("0", "1", "2", "3", "4", "5", "6", "7")]
    # Ray says in which order units begin.
    assert do(units, notes, lambda: any(tmp_path.iterdir())) == Outcome(left=8)
    assert notes.ended


def test_nodes_with_another_hotswap_get_no_units(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hotswap").mkdir()
    (tmp_path / "hotswap" / "__init__.py").write_text("")
    (tmp_path / "hotswap" / "_version.py").write_text('__version__ = "0.0.1"')
    (old,) = add_nodes(cluster, 1, resources={"old": 1}, env_vars={"PYTHONPATH": str(tmp_path)})
    notes = Notes()
    try:
        sentence = r"No node of the cluster has hotswap .*; install the same there"
        with (
            pytest.raises(UnsupportedError, match=sentence),
            join(None, PerUnit(others=(("old", 1.0),)), None, notes.say),
        ):
            pass
        with join(None, PerUnit(), None, notes.say) as joined:
            assert joined.refused == {old.node_id}
            joined.refused.clear()  # as if the node had come later
            # Two units wait on the other nodes, so that the third goes to this one.
            units = [Unit(name, ("be killed once", str(tmp_path / name))) for name in ("a", "b")]
            with ThreadPoolExecutor(1) as aside:
                place = OnRay(Setting(obeying(), 3), joined)
                done = aside.submit(do_all, [*units, Unit("c", ("", ""))], place, notes)
                pids = [wait_for(tmp_path / name) for name in ("a", "b")]
                deadline = time.monotonic() + PATIENCE
                while not joined.refused:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                assert done.result() == Outcome(finished=3)
        assert ["has hotswap 0.0.1, and this command" in text for text in notes.said] == [True, True, True]
    finally:
        kill_node(cluster, old)


def test_a_storage_that_nodes_do_not_see(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with join(None, PerUnit(), tmp_path / "storage", print):
        pass
    assert list((tmp_path / "storage").iterdir()) == []

    def lonely() -> Callable[[str | None], tuple[dict[str, str], bool]]:
        found = on_ray._versions()
        return lambda _: (found(), False)

    monkeypatch.setattr(on_ray, "_trial", lonely)
    with (
        pytest.raises(SettingError, match=r"The node .* does not see --storage .*; name a folder that all nodes may"),
        join(None, PerUnit(), tmp_path, print),
    ):
        pass


def test_nodes_that_die_at_the_start(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly() -> Callable[[str | None], None]:
        def die(_: str | None) -> None:
            os._exit(1)

        return die

    monkeypatch.setattr(on_ray, "_trial", deadly)
    sentence = r"No node of the cluster can be used: .* has died \(.*See whether Ray runs there"
    with pytest.raises(UnsupportedError, match=sentence), join(None, PerUnit(), None, lambda _: None):
        pass


@pytest.fixture
def nobody() -> str:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{port.getsockname()[1]}"


def refusal(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(SettingError) as caught, join(address, PerUnit(), None, print):
        pass
    return str(caught.value)


def test_addresses_at_which_nobody_answers(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(nobody, monkeypatch).startswith(f"Nobody answers at --address {nobody} (")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(nobody)
    assert refusal("auto", monkeypatch).startswith(f"Nobody answers at --address auto, which is {nobody} (")


def test_addresses_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal("cluster", monkeypatch).startswith("--address cluster: give auto, or host:port, such as 10.0.0.5:")
    assert refusal("10.0.0.5:6379x", monkeypatch).startswith("--address 10.0.0.5:6379x: give auto")
    assert refusal("ray://head:10001", monkeypatch).startswith("--address ray://head:10001 is one for Ray's client")
