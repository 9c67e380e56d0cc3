"""Studies and benchmarks on a cluster of real nodes: the same results as on one machine, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from benchmarks.cluster import keeper, overhead, planning, sleepers
from hotswap import extensions
from hotswap.bench.clustered import run_bench_on_cluster
from hotswap.bench.methods import FIRST, METHODS
from hotswap.bench.running import BenchOptions, Here, run_bench
from hotswap.bench.runs import Point, Run
from hotswap.bench.store import BenchStore
from hotswap.cli import app
from hotswap.cluster import Outcome, PerUnit, Piece, travelling
from hotswap.cluster.dispatch import Dispatch
from hotswap.cluster.joining import join
from hotswap.data import load_digits
from hotswap.errors import SettingError, StudyError, UnsupportedError
from hotswap.studies import StudySpec, Unit
from hotswap.studies.running.clustered import run_on_cluster
from hotswap.studies.running.train import RunOptions
from hotswap.studies.storage.one_writer import check_unwritten
from hotswap.studies.storage.store import Store
from tests.bench.helpers import Silent
from tests.children import child, hotswap_command
from tests.cluster.gates import Gate, wait_until
from tests.cluster.nodes import add_nodes, cluster_of, kill_node, node_of
from tests.cluster.units import Notes, counting, waiting
from tests.studies.running.test_train import TOML, TOY, Quiet, assert_same, run

STUDY: StudySpec = replace(TOY, seeds=(0,), epochs=25)
OPTIONS = RunOptions(checkpoint_epochs=5)
UNITS = [f"{name}-b{size}" for name in ("adadelta", "ducb", "sgd") for size in (128, 64)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(folder, STUDY, OPTIONS)
    return folder


class Watchful(Quiet):
    """Does something once all units that a gate holds have come to it."""

    def __init__(self, gate: Gate, deed: Callable[[], object]) -> None:
        super().__init__()
        self.missing, self.deed = set(gate.units), deed

    def epoch_done(self, unit: Unit, epoch: int, alive: int, seconds: float) -> None:
        super().epoch_done(unit, epoch, alive, seconds)
        if epoch == Gate.EPOCH and unit.id in self.missing:
            self.missing.remove(unit.id)
            if not self.missing:
                self.deed()


def trained_in(folder: Path) -> set[int]:
    """The processes that train units, as the folder says."""
    with Store.open(folder) as store:
        return {int(unit.where.rpartition(" ")[2]) for unit in store.summary().units if "process" in unit.where}


def train(folder: Path, listener: Quiet, *, storage: Path | None = None, **more: Any) -> Outcome:
    where = None if storage is None else str(storage)
    with (
        join(None, PerUnit(), where, listener.say) as joined,
        Store.create(folder, STUDY, precision="fp32") as store,
    ):
        return run_on_cluster(store, STUDY, load_digits(), OPTIONS, listener, joined, **more)


@pytest.fixture
def gate_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gate]:
    """Gates that workers load."""

    def made(*units: str) -> Gate:
        gate = Gate(tmp_path, *units)
        monkeypatch.setattr(extensions, "LOADED", [gate.file])
        return gate

    return made


def test_the_metrics_are_those_of_one_machine(cluster: Cluster, whole: Path, tmp_path: Path) -> None:
    quiet = Quiet()
    assert train(tmp_path, quiet) == Outcome(6, 0, {})
    assert_same(tmp_path, whole)
    assert sorted(quiet.began) == [(unit, 0) for unit in UNITS]
    assert quiet.epochs == 6 * STUDY.epochs
    here, there = ({path.relative_to(f) for path in f.glob("checkpoints/*/epoch-*")} for f in (tmp_path, whole))
    assert here == there
    with Store.open(tmp_path) as store:
        assert {unit.state for unit in store.summary().units} == {"done"}


def test_checkpoints_in_a_storage_survive_a_node_and_a_worker(
    cluster: Cluster, whole: Path, tmp_path: Path, gate_for: Callable[..., Gate]
) -> None:
    study, storage = tmp_path / "study", tmp_path / "storage"
    gate = gate_for("adadelta-b64", "sgd-b128")  # on two nodes, since each has room for one

    def kill_both() -> None:
        worker, other = (gate.process(unit) for unit in gate.units)
        assert {worker, other} <= trained_in(study)
        node = node_of(cluster, other)
        assert node is not node_of(cluster, worker)
        os.kill(worker, signal.SIGKILL)
        kill_node(cluster, node)
        add_nodes(cluster, 1)

    watchful = Watchful(gate, kill_both)
    assert train(study, watchful, storage=storage) == Outcome(6, 0, {})
    assert_same(study, whole)
    said = {text.partition(" (")[0] for text in watchful.said}
    assert "adadelta-b64 was interrupted: its worker died" in said
    assert "sgd-b128 was interrupted: its node died. It goes on from its last checkpoint." in said
    assert {("adadelta-b64", 15), ("sgd-b128", 15)} <= set(watchful.began)
    names = sorted(path.name for path in study.glob("checkpoints/sgd-b128-*/*"))
    assert names == ["epoch-000020.stored", "epoch-000025.stored"]
    assert len(list(storage.glob("*/sgd-b128/*"))) == 2


def test_a_node_that_dies_while_checkpoints_come_back(
    cluster: Cluster, whole: Path, tmp_path: Path, gate_for: Callable[..., Gate]
) -> None:
    gate = gate_for("ducb-b64")

    def kill_one() -> None:
        kill_node(cluster, node_of(cluster, gate.process("ducb-b64")))
        add_nodes(cluster, 1)

    watchful = Watchful(gate, kill_one)
    assert train(tmp_path / "study", watchful) == Outcome(6, 0, {})
    assert_same(tmp_path / "study", whole)
    assert "ducb-b64 was interrupted: its node died. It goes on from its last checkpoint." in watchful.said
    assert ("ducb-b64", 15) in watchful.began


def test_it_stops_at_checkpoints_and_goes_on_here(
    cluster: Cluster, whole: Path, tmp_path: Path, gate_for: Callable[..., Gate]
) -> None:
    stopping: list[bool] = []
    watchful = Watchful(gate_for("ducb-b64"), lambda: stopping.append(True))
    outcome = train(tmp_path / "study", watchful, asked_to_stop=lambda: bool(stopping))
    assert outcome.left
    again = run(tmp_path / "study", STUDY, OPTIONS)  # without a cluster: the folder is one as any
    assert ("ducb-b64", Gate.EPOCH + 1) in again.began
    assert_same(tmp_path / "study", whole)


TEXT = TOML.format(epochs=STUDY.epochs).replace("seeds = [0, 1]", "seeds = [0]")


def test_the_command_is_killed_then_interrupted_then_goes_on(
    cluster: Cluster, whole: Path, tmp_path: Path, gate_for: Callable[..., Gate]
) -> None:
    file, out, gate = tmp_path / "study.toml", tmp_path / "out", gate_for("adadelta-b128")
    file.write_text(TEXT, encoding="utf-8")
    words = ("study", "run", str(file), "--out", str(out), "--on", "ray")
    command = hotswap_command("--load", str(gate.file), *words, "--address", cluster.address)
    with child(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        gate.process("adadelta-b128")
        with pytest.raises(StudyError, match=f"is being written to by process {process.pid}, and"):
            check_unwritten(out)
        process.kill()
    gate.close()

    def interrupt() -> None:
        gate.process("adadelta-b128")
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background may ignore
    try:
        with ThreadPoolExecutor(1) as aside:
            interrupted = aside.submit(interrupt)
            done = CliRunner().invoke(app, words)
            interrupted.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "Stopped at checkpoints. Run the same command again" in done.output
    assert done.exit_code == 128 + signal.SIGINT
    train(out, Quiet())
    assert_same(out, whole)


MINE = """
import os
import time
from pathlib import Path

import torch

from hotswap.bench.methods import METHODS, Configuration, Method
from hotswap.bench.methods.base import Plain

SEEN = Path({seen!r})


@METHODS.register("mine")
class Mine(Method):
    title = "one that waits to be killed, once, and of which the first configuration fails"
    first = Configuration({{"lr": 0.0}}, "nobody")
    second = Configuration({{"lr": 0.1}}, "experience")

    def begin(self, task, settings, seed):
        if seed == 0 and not SEEN.exists():
            part = SEEN.with_suffix(".part")
            part.write_text(str(os.getpid()))
            part.rename(SEEN)
            time.sleep(3600)
        if not settings["lr"]:
            raise ValueError("no rate")
        return Plain(task, torch.optim.SGD(task.model.parameters(), **settings))
"""
BENCH = ("bench", "run", "--size", "smoke", "--workload", "paper_network", "--method", "adamw", "--method", "mine")


def measured(folder: Path) -> dict[str, Any]:
    """All there is of each run but when and how fast it was trained, and by which command."""
    with BenchStore.open(folder) as store:
        return {
            name: (one.state, one.reason, one.budget, one.settings, [p._replace(seconds=0.0) for p in one.points])
            for name, one in store.results().items()
        }


def test_a_benchmark_has_the_results_of_one_machine(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(METHODS, "_known", dict(METHODS))  # what is loaded is taken back after the test
    monkeypatch.setattr(extensions, "LOADED", [])
    seen, file = tmp_path / "seen", tmp_path / "mine.py"
    file.write_text(MINE.format(seen=str(seen)), encoding="utf-8")
    held = Run("paper_network", "mine", FIRST, 0, "smoke")

    def kill_its_node() -> str | None:
        wait_until(seen.exists)
        pid = int(seen.read_text())
        with BenchStore.open(tmp_path / "ray") as store:
            where = store.running(held)
        kill_node(cluster, node_of(cluster, pid))
        return where

    with ThreadPoolExecutor(1) as aside:
        killed = aside.submit(kill_its_node)
        done = CliRunner().invoke(app, ["--load", str(file), *BENCH, "--out", str(tmp_path / "ray"), "--on", "ray"])
        assert (killed.result() or "").endswith(f"process {seen.read_text()}")
    add_nodes(cluster, 1)
    assert "All of it has ended" in done.output, done.output
    assert f"{held.id} was interrupted: its node died. It begins anew." in done.output
    with BenchStore.create(tmp_path / "here", "smoke") as store:
        assert run_bench(store, BenchOptions(workloads=["paper_network"], methods=["adamw", "mine"]), Here(), Silent())
    assert measured(tmp_path / "ray") == measured(tmp_path / "here")
    assert len(measured(tmp_path / "here")) == 15  # the second configuration among them
    with BenchStore.open(tmp_path / "ray") as store:
        assert {result.origin["threads"] for result in store.results().values()} == {1}


class Stopping(Silent):
    """Wants to stop as soon as a run has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[Run] = []

    def measured(self, run: Run, point: Point) -> None:
        super().measured(run, point)
        self.first = self.first or [run]


def test_a_benchmark_that_is_stopped_ends_the_runs_under_way(cluster: Cluster, tmp_path: Path) -> None:
    options = BenchOptions(workloads=["logistic_regression"], methods=["adamw", "sgd", "adadelta"])
    stopping = Stopping()
    with join(None, PerUnit(), None, print) as joined, BenchStore.create(tmp_path, "smoke") as store:
        stopped = lambda: bool(stopping.first)  # noqa: E731
        assert not run_bench_on_cluster(store, options, {}, "cpu", stopping, joined, stopped)
        before = store.results()
        assert stopping.first[0].id in before
        assert {result.state for result in before.values()} == {"finished"}
        assert run_bench(store, options, Here(), Silent())  # without a cluster: the folder is one as any
        assert before.items() <= store.results().items()


def test_three_failures_are_the_end_of_a_unit_and_of_no_other(cluster: Cluster) -> None:
    notes = Notes()
    names = ["raises", "dies", "stumbles", "taken", "well"]
    with join(None, PerUnit(), None, print) as joined:
        outcome = Dispatch(joined, counting(), "shared", notes).run(Piece(name, name) for name in names)
    assert (outcome.finished, outcome.left) == (2, 1)
    assert outcome.failed["raises"] == "ValueError: three is too many"
    assert outcome.failed["dies"].startswith("its worker died (")
    assert set(outcome.failed) == {"raises", "dies"}
    again = [said.partition(":")[0] for said in notes.said]
    assert [again.count(name) for name in names] == [2, 2, 3, 0, 0]  # "stumbles" has a new checkpoint each time
    assert notes.received["well"] == [("shared", number) for number in (1, 2, 3, 4)]
    assert notes.received["raises"] == [("shared", 1), ("shared", 2)]
    assert notes.ended["well"] == (True, "")
    assert not notes.ended["raises"][0]
    assert "for this one" in notes.ended["raises"][1]


def test_a_storage_that_one_node_cannot_reach(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = next(iter(cluster.worker_nodes)).node_id

    def tried(expected: dict[str, str], storage: str | None) -> tuple[dict[str, str], str]:
        there = ray.get_runtime_context().get_node_id()
        return expected, f"--storage {storage} cannot be written to." if there == lonely else ""

    monkeypatch.setattr(travelling, "trial", lambda: tried)
    sentence = r"^On the node .*: --storage file://.* cannot be written to\.$"
    with pytest.raises(SettingError, match=sentence), join(None, PerUnit(), str(tmp_path), print):
        pass


def test_the_benchmark_measures_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    with join(None, PerUnit(), None, print) as joined:
        assert overhead(joined, 3) > 0
        kept = keeper(joined, tmp_path / "rows", epochs=3, units=2, runs=5)
        slept = sleepers(joined, tmp_path / "sleepers", 4, 0.01)
    assert kept.rows == 3 * 2 * 5
    assert kept.per_second > 0
    assert (slept.units, slept.workers) == (4, 2)
    assert planning(tmp_path / "planned", 200) > 0


def test_nodes_with_another_hotswap_get_no_units(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hotswap").mkdir()
    (tmp_path / "hotswap" / "__init__.py").write_text("")
    (tmp_path / "hotswap" / "_version.py").write_text('__version__ = "0.0.1"')
    (old,) = add_nodes(cluster, 1, resources={"old": 1}, env_vars={"PYTHONPATH": str(tmp_path)})
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            (tmp_path / "go").touch()

    try:
        sentence = r"No node of the cluster has hotswap .*; install the same there"
        only_there = PerUnit(others=(("old", 1.0),))
        with pytest.raises(UnsupportedError, match=sentence), join(None, only_there, None, print):
            pass
        with join(None, PerUnit(), None, say) as joined:
            assert joined.refused == {old.node_id}
            joined.refused.clear()  # as if it had come later
            # Units wait until it has been refused again, and so does it with the last of them: the others have no room.
            pieces = [Piece(str(number), str(tmp_path / "go")) for number in range(3)]
            outcome = Dispatch(joined, waiting(), "shared", Notes()).run(pieces)
        assert outcome == Outcome(3, 0, {})
        assert joined.refused == {old.node_id}
        assert ["has hotswap 0.0.1, and this command" in text for text in said] == [True, True]
    finally:
        kill_node(cluster, old)
