"""The benchmark's commands as a person meets them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotswap import extensions, work
from hotswap.bench.methods import METHODS
from hotswap.bench.runs import Result, State
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.cli import app
from hotswap.cli.bench import SizeName, suitable
from hotswap.errors import HotSwapError, StudyError
from hotswap.work import Here, Setting
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
    assert all(name in shown for name in ("run", "status", "report", "list", "export"))
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
    fitting = {name for name, workload in WORKLOADS.items() if workload.wants_gpu == gpu}
    assert set(suitable(None, device, SizeName.FULL)) == fitting
    assert set(suitable(None, device, SizeName.SMOKE)) == set(WORKLOADS)


@pytest.mark.parametrize(
    ("device", "size", "warned"), [("cpu", "full", True), ("cpu", "smoke", False), ("cuda", "full", False)]
)
def test_a_workload_for_a_gpu_is_warned_of_on_a_cpu(
    capsys: pytest.CaptureFixture[str], device: str, size: str, warned: bool
) -> None:
    suitable(["transformer_text", "paper_network"], device, SizeName(size))
    said = "Meant for a GPU, and slow without one, many minutes a run: transformer_text."
    assert (said in " ".join("".join(capsys.readouterr()).split())) == warned


def test_runs_that_could_not_be_compared_are_not_trained(tmp_path: Path) -> None:
    BenchStore.create(tmp_path, "smoke").record([made("recurrent_text", "adamw", python="3.0.0", device="CPU")])
    words = ("bench", "run", "--size", "smoke", "--workload", "recurrent_text", "--method", "adamw")
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
    shown = invoke("bench", "report", str(tmp_path / "tables"), "--out", str(tmp_path / "report"))
    assert "Wrote 4 files" in shown
    assert "5 of 5 runs" in invoke("bench", "status", str(tmp_path / "tables"), "--workload", W, "--method", "adamw")
    assert "finished after" not in invoke(*RUN, str(tmp_path / "tables"))  # a benchmark begins with tables


def test_what_cannot_be_compared_is_not_exported(tmp_path: Path) -> None:
    store = BenchStore.create(tmp_path / "bench", "smoke")
    store.record([made("recurrent_text", "adamw", seed, python=f"3.0.{seed}", device="CPU") for seed in range(2)])
    with pytest.raises(StudyError, match="cannot be compared"):
        invoke("bench", "export", str(tmp_path / "bench"), str(tmp_path / "tables"))
    assert not (tmp_path / "tables").exists()


def test_a_status_is_of_what_has_begun_and_names_strangers(tmp_path: Path) -> None:
    stranger = made(W, "sgd")
    store = BenchStore.create(tmp_path, "smoke")
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


def done(result: Result) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_result(result)
    return future


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("failed", "All of it has ended: 5 failed (--retry-failed tries them again). Next"),
        ("missing", "Not everything has ended: 5 missing (the same command tries them again). See"),
        ("diverged", "All of it has ended: 5 diverged. Next"),
        ("killed", "Not everything has ended: 5 killed (the same command tries them again). See"),
    ],
)
def test_what_became_of_runs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: State, told: str) -> None:
    """And a process whose run was killed trains no other one: its GPU may have failed."""
    pretending = Pretending(lambda _: state)

    def here(setting: Setting, jobs: int, is_spent: Callable[[Result], bool]) -> Here:
        assert is_spent(made(W, "adamw", state=state)) == (state == "killed")
        return Here(setting, jobs, is_spent)

    monkeypatch.setattr(work, "Here", here)
    monkeypatch.setattr(Here, "submit", lambda _, run: done(pretending(None, run, None, lambda *_: None)))
    assert told in invoke(*RUN, str(tmp_path))


def test_a_report_prints_scores(tmp_path: Path) -> None:
    easy = (made("paper_network", "adamw", seed, curve=[1.0, *[0.01] * 13]) for seed in range(5))
    BenchStore.create(tmp_path / "bench", "smoke").record([*whole().values(), *easy])
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
    ],
)
def test_mistakes_are_sentences_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HotSwapError, match=said):
        invoke("bench", *words)
    assert list(tmp_path.iterdir()) == []


def test_methods_and_workloads_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "_known", dict(METHODS))
    monkeypatch.setattr(extensions, "LOADED", [])
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
    assert invoke("--load", str(mine), *words).count("rmsprop-default") == 5  # in a process that has to load it, too


def waiting_for(folder: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (folder / "about.hotswap").exists() and len(BenchStore.open(folder).results()) >= count:
            return
        time.sleep(0.05)
    pytest.fail("nothing was trained")


def test_killed_and_stopped_by_a_signal_it_goes_on(tmp_path: Path) -> None:
    before: dict[str, Result] = {}
    for how, code, count in ((signal.SIGKILL, -9, 1), (signal.SIGINT, 130, 2)):
        with child(hotswap_command(*RUN, str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            waiting_for(tmp_path, count)
            process.send_signal(how)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, said
        assert "Traceback" not in said
        assert ("Run the same command again to go on" in said) == (how == signal.SIGINT)
        there = BenchStore.open(tmp_path).results()
        assert count <= len(there) < 5
        assert all(there[name] == result for name, result in before.items())
        before = there
    invoke(*RUN, str(tmp_path))
    after = BenchStore.open(tmp_path).results()
    assert len(after) == 5
    assert all(after[name] == result for name, result in before.items())
