"""The command line as a person meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hotswap
from hotswap import DataError, __version__
from hotswap.cli import app
from hotswap.data import Dataset, load_digits
from hotswap.demo import DemoSettings, Outcome, contenders, load_data, train, training
from hotswap.demo.figure import draw, save
from hotswap.studies import STUDIES
from tests.children import PATIENCE, child, hotswap_command

PNG = b"\x89PNG\r\n\x1a\n"


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hotswap.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def test_help_teaches() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "demo" in shown
    assert "data" in shown
    assert "without choosing a learning rate" in shown
    assert "five minutes" in CliRunner().invoke(app, ["demo", "--help"]).output.lower()
    assert "checked" in CliRunner().invoke(app, ["data", "--help"]).output
    assert {f"`{name}`," for name in STUDIES} <= set(CliRunner().invoke(app, ["study", "run", "--help"]).output.split())


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"hotswap {__version__}"


def test_a_mistake_is_one_sentence() -> None:
    done = run("data", "get", "imagenet")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    said = " ".join(done.stderr.replace("│", "").split())
    assert "There is no data set 'imagenet'; there are cifar10, digits, fashion_mnist, mnist." in said


def test_a_folder_that_cannot_be_written_is_noticed_before_any_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("demo", "--out", str(tmp_path / "file" / "below"))
    assert done.returncode == 1
    assert "cannot be written to" in done.stderr
    assert "Traceback" not in done.stderr
    assert "steps" not in done.stdout


def test_data_list() -> None:
    assert "mnist" in CliRunner().invoke(app, ["data", "list"]).output.split()


@pytest.mark.mnist
def test_data_get() -> None:
    shown = CliRunner().invoke(app, ["data", "get", "mnist"]).output
    assert "60000 train and 10000 test images" in " ".join(shown.split())


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> Dataset:
        raise DataError("MNIST cannot be had.")

    monkeypatch.setattr(training, "load_mnist", unreachable)


def test_the_demo_falls_back_to_digits_says_so_and_draws(offline: None, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--epochs", "2", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Falling back to scikit-learn's 8x8 digits" in done.output
    assert "HotSwapSGD, headroom 1" in done.output
    assert (tmp_path / "hot-swapping.png").read_bytes().startswith(PNG)
    written = (tmp_path / "results.md").read_text()
    assert "| HotSwapSGD | " in written
    for line in written.splitlines():
        assert not line.startswith("| SGD") or "| 44 |  |  |" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hot-swapping.png", "results.md"]


def test_the_demo_gives_everyone_the_same_start(offline: None) -> None:
    data = load_data(None, lambda _: None)
    settings = DemoSettings(epochs=1, batch_size=32)
    first: dict[str, list[float]] = {}
    for contender in contenders(settings):
        losses: list[float] = []
        train(contender, data, settings, lambda _, loss, losses=losses: losses.append(loss))
        first[contender.name] = losses
    assert len({losses[0] for losses in first.values()}) == 1
    assert "AdamW" in first  # as torch has it: what a newcomer would take instead
    assert first["SGD, rate 1"][-1] != first["SGD, rate 0.1"][-1]


def test_a_batch_larger_than_the_data_is_refused() -> None:
    done = run("demo", "--batch-size", "60000")
    assert done.returncode == 1
    assert "Error: The demo's batch size is 60000" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_interrupting_the_demo_leaves_no_traceback_and_no_file(tmp_path: Path) -> None:
    command = hotswap_command("demo", "--out", str(tmp_path), "--epochs", "1000")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with child(command, **pipes, start_new_session=True) as process:
        assert process.stdout is not None
        while "batch size" not in process.stdout.readline():  # it has begun
            assert process.poll() is None
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    assert "Stopped; no figure was written." in complaint
    assert list(tmp_path.iterdir()) == []


def test_a_figure_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome("HotSwapSGD", swaps=True, train_losses=[1.0, 0.5], test_errors=[0.2, np.nan], rates=[0.0, 0.1])
    failed = Outcome("SGD, rate 10", swaps=False, train_losses=[300.0, 280.0], test_errors=[0.9, 0.9])
    figure = draw([outcome, failed], "made up")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["HotSwapSGD", "SGD, rate 10 (off the scale)"]
    target = tmp_path / "new" / "figure.png"

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(type(figure), "savefig", broken)
        with pytest.raises(OSError, match="disk full"):
            save(figure, target)
    assert list(target.parent.iterdir()) == []
    save(figure, target)
    assert target.read_bytes().startswith(PNG)


def test_who_chooses_a_rate_has_a_colour_of_its_own_and_one_epoch_is_seen() -> None:
    names = ("HotSwapSGD", "HotSwapSGD, headroom 1", "another of them")
    figure = draw([Outcome(name, swaps=True, train_losses=[1.0], test_errors=[0.1], rates=[0.1]) for name in names], "")
    losses, _, rates = figure.axes
    colours = [line.get_color() for line in losses.lines]
    assert len(set(colours)) == 3
    assert [line.get_color() for line in rates.lines] == colours
    assert {line.get_marker() for line in losses.lines} == {"o"}


def test_digits_are_enough_for_the_network() -> None:
    assert load_digits().features == 64


def test_no_two_lines_of_the_demo_look_the_same() -> None:
    shown = []
    for contender in contenders(DemoSettings()):
        optimizer = contender.build([torch.nn.Parameter(torch.ones(2))])
        swaps = isinstance(optimizer, hotswap.HotSwap)
        shown.append(Outcome(contender.name, swaps=swaps, tuned=contender.tuned))
    figure = draw([replace(one, train_losses=[1.0], test_errors=[0.1], rates=[1.0]) for one in shown], "")
    lines = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()]
    assert len(lines) == len(shown) == len(set(lines))
