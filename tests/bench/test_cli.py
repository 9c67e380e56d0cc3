"""The benchmark's commands as a person meets them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotswap.bench import clustered
from hotswap.bench.exchange import export_results
from hotswap.bench.methods import METHODS
from hotswap.bench.running import BenchOptions
from hotswap.bench.runs import State
from hotswap.bench.store import BenchStore
from hotswap.bench.workers import Workers
from hotswap.bench.workloads import WORKLOADS
from hotswap.cli import app
from hotswap.cli.bench import SizeName, _options
from hotswap.cluster import joining
from hotswap.errors import HotSwapError, SettingError, StudyError
from tests.bench.helpers import Pretending, made
from tests.bench.test_report import whole
from tests.children import PATIENCE, child, hotswap_command

W = "logistic_regression"
RUN = ("bench", "run", "--size", "smoke", "--workload", W, "--method", "adamw", "--out")


def invoke(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_help_teaches() -> None:
    shown = invoke("bench", "--help")
    assert "at the same cost" in shown
    assert all(name in shown for name in ("run", "status", "report", "list", "export", "import"))
    assert "goes on" in invoke("bench", "run", "--help") or "go on" in invoke("bench", "run", "--help")


def test_the_list_names_all_there_is() -> None:
    shown = invoke("bench", "list")
    assert {*WORKLOADS, *METHODS} <= set(shown.split())
    told = " ".join(shown.split())
    assert "lr 0.1, momentum 0.9" in told
    assert "where that fails: reps_rel 0.0001" in told
    assert "the best of 20" in told


@pytest.mark.parametrize(("device", "gpu"), [("cpu", False), ("cuda", True)])
def test_without_names_workloads_suit_the_device(device: str, gpu: bool) -> None:
    chosen = _options(None, None, device, SizeName.FULL)
    assert set(chosen.workloads) == {name for name, workload in WORKLOADS.items() if workload.wants_gpu == gpu}
    assert list(chosen.methods) == list(METHODS)
    assert set(_options(None, None, device, SizeName.SMOKE).workloads) == set(WORKLOADS)


@pytest.mark.parametrize(
    ("device", "size", "warned"), [("cpu", "full", True), ("cpu", "smoke", False), ("cuda", "full", False)]
)
def test_a_workload_for_a_gpu_is_warned_of_on_a_cpu(
    capsys: pytest.CaptureFixture[str], device: str, size: str, warned: bool
) -> None:
    _options(["transformer_text", "paper_network"], None, device, SizeName(size))
    said = "Meant for a GPU, and slow without one, many minutes a run: transformer_text."
    assert (said in " ".join("".join(capsys.readouterr()).split())) == warned


def test_runs_that_could_not_be_compared_are_not_trained(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made("recurrent_text", "adamw", python="3.0.0", device="CPU")])
    words = ("bench", "run", "--size", "smoke", "--workload", "recurrent_text", "--method", "adamw")
    with pytest.raises(StudyError, match=r"trained on the sources of Python 3\.0\.0; here"):
        invoke(*words, "--out", str(tmp_path))


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of a cluster, which trains one run; the devices that it was asked for."""
    devices: list[str] = []

    @contextmanager
    def joined(*_: object) -> Iterator[None]:
        yield None

    def trained(store: BenchStore, options: BenchOptions, data: object, device: str, *_: object) -> bool:
        result = made(options.workloads[0], "adamw")
        store.record([replace(result, run=replace(result.run, size=store.size))])
        devices.append(device)
        return False

    monkeypatch.setattr(joining, "join", joined)
    monkeypatch.setattr(clustered, "run_bench_on_cluster", trained)
    monkeypatch.setattr(clustered, "load_datasets", lambda *_: {})
    return devices


def test_on_a_cluster_with_gpus_it_is_their_workloads_that_are_told_of(tmp_path: Path, no_cluster: list[str]) -> None:
    words = ("bench", "run", "--on", "ray", "--per-unit", "gpu=1", "--method", "adamw")
    shown = invoke(*words, "--out", str(tmp_path))
    assert no_cluster == ["cuda"]
    assert shown.count("On cuda: ") == 1
    assert "On cpu" not in shown
    assert "Not everything has ended: 1 finished, 5 left." in shown


@pytest.mark.usefixtures("no_cluster")
def test_runs_that_could_not_be_compared_are_not_sent_to_a_cluster(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made("recurrent_text", "adamw", python="3.0.0", device="CPU")])
    words = ("bench", "run", "--on", "ray", "--size", "smoke", "--workload", "recurrent_text", "--method", "adamw")
    with pytest.raises(StudyError, match=r"trained on the sources of Python 3\.0\.0; here"):
        invoke(*words, "--out", str(tmp_path))


def test_from_run_to_report(tmp_path: Path) -> None:
    folder = str(tmp_path / "bench")
    shown = invoke(*RUN, folder, "--jobs", "2")
    assert re.findall(r"finished after \d+ s \((\d) of (\d)\)", shown) == [(str(place), "5") for place in range(1, 6)]
    assert "All of it has ended: 5 finished. Next: hotswap bench report" in shown
    assert "finished after" not in invoke(*RUN, folder)  # nothing is left
    shown = invoke("bench", "status", folder, "--workload", W, "--method", "adamw")
    assert "5 of 5 runs" in shown
    shown = invoke("bench", "report", folder, "--out", str(tmp_path / "report"))
    assert "Wrote 4 files" in shown
    assert (
        f"{W} has no scores yet: its reference is not there, which hotswap bench run --method tuned searches for"
        in " ".join(shown.split())
    )
    assert (tmp_path / "report" / f"workload-{W}.png").exists()
    invoke("bench", "export", folder, str(tmp_path / "tables"))
    merged = str(tmp_path / "merged")
    assert "5 runs are new" in invoke("bench", "import", merged, str(tmp_path / "tables"), "--size", "smoke")
    shown = invoke("bench", "report", str(tmp_path / "tables"), "--out", str(tmp_path / "report"))
    assert "Wrote 4 files" in shown
    with pytest.raises(StudyError, match="holds exported tables; `hotswap bench import DIR"):
        invoke("bench", "status", str(tmp_path / "tables"))


def test_what_is_refused_makes_no_folder(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path / "bench", "smoke") as store:
        store.record([made("recurrent_text", "adamw", seed, python=f"3.0.{seed}", device="CPU") for seed in range(2)])
        export_results(store, tmp_path / "tables")
    with pytest.raises(StudyError, match="cannot be compared"):
        invoke("bench", "import", str(tmp_path / "new"), str(tmp_path / "tables"))
    with pytest.raises(StudyError, match="is of size smoke"):
        invoke("bench", "import", str(tmp_path / "new"), str(tmp_path / "tables"), "--size", "full")
    assert not (tmp_path / "new").exists()


def test_an_import_takes_its_size_from_the_tables_and_says_what_is_wrong_with_them(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path / "bench", "smoke") as store:
        store.record([replace(made(W, "adamw"), version=0), made(W, "sgd")])
        export_results(store, tmp_path / "tables")
    shown = invoke("bench", "import", str(tmp_path / "new"), str(tmp_path / "tables"))
    assert "2 runs are new" in shown
    assert "1 in it is outdated; see: hotswap bench status" in shown
    with BenchStore.open(tmp_path / "new") as store:
        assert store.size == "smoke"
    with pytest.raises(SettingError, match="holds a benchmark of size smoke, not full; leave --size out"):
        invoke("bench", "import", str(tmp_path / "new"), str(tmp_path / "tables"), "--size", "full")
    with pytest.raises(
        StudyError, match=r"is a benchmark's own folder; `hotswap bench export .* OUT` writes its tables"
    ):
        invoke("bench", "import", str(tmp_path / "other"), str(tmp_path / "bench"))
    assert not (tmp_path / "other").exists()


def test_a_status_is_of_what_has_begun_and_names_strangers(tmp_path: Path) -> None:
    stranger = made(W, "sgd")
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made(W, "adamw"), made("autoencoder", "dog", state="missing")])
        store.record([replace(stranger, run=replace(stranger.run, method="mine"))])
    shown = invoke("bench", "status", str(tmp_path))
    assert "1 of 10 runs that are known so far have ended" in shown
    assert "1 is of workloads or methods that are not known here" in shown
    assert "of which none has begun" in shown
    shown = invoke("bench", "status", str(tmp_path), "--workload", W)
    assert "prodigy" in shown  # what has not begun, too, where a name is given
    assert "missing" not in shown  # that is of another workload
    assert "trained for 0.2 min" in shown  # ten seconds
    assert "trained for 0.0 min" in invoke("bench", "status", str(tmp_path), "--workload", "paper_network")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("failed", "All of it has ended: 5 failed (--retry-failed tries them again). Next"),
        ("missing", "Not everything has ended: 5 missing (the same command tries them again). See"),
        ("diverged", "All of it has ended: 5 diverged. Next"),
    ],
)
def test_what_became_of_runs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: State, told: str) -> None:
    monkeypatch.setattr(Workers, "train", lambda _, run, watch: Pretending(fate=lambda _: state).train(run, watch))
    assert told in invoke(*RUN, str(tmp_path))


def test_a_report_prints_scores(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path / "bench", "smoke") as store:
        store.record(
            [*whole().values(), *(made("paper_network", "adamw", s, curve=[1.0, *[0.01] * 13]) for s in range(5))]
        )
    shown = invoke("bench", "report", str(tmp_path / "bench"), "--out", str(tmp_path / "report"))
    assert "geometric mean" in shown
    assert "paper_network is too easy: AdamW's default reaches its reference" in shown
    assert "cifar_resnet has not been run yet." in shown
    shown = invoke("bench", "status", str(tmp_path / "bench"))
    assert "dog (default), seeds 0, 1, 2, 3, 4: missing" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--out", "x", "--workload", "imagenet"), "--workload: there is no workload 'imagenet'"),
        (("run", "--out", "x", "--method", "adamww"), r"--method: .*nearest: adamw"),
        (("run", "--out", "x", "--device", "tpu"), "There is no device 'tpu'"),
        (("run", "--out", "x", "--stop-after", "0"), "--stop-after 0: give a number of minutes above 0"),
        (("status", "x"), "x holds no benchmark"),
        (("report", "x"), "x holds no benchmark"),
        (("export", "x", "y"), "x holds no benchmark"),
        (("import", "x", "y"), "y is not a folder that"),
    ],
)
def test_mistakes_are_sentences_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HotSwapError, match=said):
        invoke("bench", *words)
    assert list(tmp_path.iterdir()) == []


def test_methods_and_workloads_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch\n"
        "from hotswap.bench.methods import METHODS, Configuration, Method\n"
        "from hotswap.bench.methods.base import Plain\n"
        "@METHODS.register('rmsprop')\n"
        "class RMSprop(Method):\n"
        "    title = 'RMSprop'\n"
        "    first = Configuration({'lr': 1e-3}, 'taste')\n"
        "    def begin(self, task, settings, seed):\n"
        "        return Plain(task, torch.optim.RMSprop(task.model.parameters(), **settings))\n"
    )
    words = ("bench", "run", "--size", "smoke", "--workload", W, "--method", "rmsprop", "--out", str(tmp_path / "b"))
    done = subprocess.run(hotswap_command("--load", str(mine), *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rmsprop-default") == 5


def waiting_for(folder: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (folder / "ledger.sqlite").exists():
            with BenchStore.open(folder) as store:
                if len(store.results()) >= count:
                    return
        time.sleep(0.05)
    pytest.fail("nothing was trained")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_by_a_signal_it_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    with child(hotswap_command(*RUN, str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        waiting_for(tmp_path, 1)
        process.send_signal(how)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == (130 if how == signal.SIGINT else -9), said
    assert "Traceback" not in said
    if how == signal.SIGINT:
        assert "Run the same command again to go on" in said
    with BenchStore.open(tmp_path) as store:
        before = store.results()
    assert 1 <= len(before) < 5
    invoke(*RUN, str(tmp_path))
    with BenchStore.open(tmp_path) as store:
        after = store.results()
    assert len(after) == 5
    assert all(after[name] == result for name, result in before.items())
