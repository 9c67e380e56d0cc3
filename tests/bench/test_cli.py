"""The benchmark's commands as a person meets them."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotswap.bench.methods import METHODS
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.cli import app
from hotswap.errors import HotSwapError
from tests.bench.helpers import made
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
    for name in (*WORKLOADS, *METHODS):
        assert name in shown


def test_from_run_to_report(tmp_path: Path) -> None:
    folder = str(tmp_path / "bench")
    shown = invoke(*RUN, folder, "--jobs", "2")
    assert shown.count("finished after") == 5
    assert "All of it has ended" in shown
    assert "finished after" not in invoke(*RUN, folder)  # nothing is left
    shown = invoke("bench", "status", folder, "--workload", W, "--method", "adamw")
    assert "5 of 5 runs" in shown
    assert "Wrote 4 files" in invoke("bench", "report", folder, "--out", str(tmp_path / "report"))
    assert (tmp_path / "report" / f"workload-{W}.png").exists()
    invoke("bench", "export", folder, str(tmp_path / "tables"))
    merged = str(tmp_path / "merged")
    assert "5 runs are new" in invoke("bench", "import", merged, str(tmp_path / "tables"), "--size", "smoke")


def test_a_report_prints_scores(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path / "bench", "smoke") as store:
        store.record(
            [*whole().values(), *(made("paper_network", "adamw", s, curve=[1.0, *[0.01] * 13]) for s in range(5))]
        )
    shown = invoke("bench", "report", str(tmp_path / "bench"), "--out", str(tmp_path / "report"))
    assert "geometric mean" in shown
    assert "Too easy: AdamW's default reaches the reference of paper_network" in shown
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
