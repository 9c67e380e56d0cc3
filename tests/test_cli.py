"""The command line as a person meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotswap import __version__
from hotswap.cli import app, main
from hotswap.studies import STUDIES
from tests.children import PATIENCE, child, hotswap_command


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str, str]]:
    """The command line in this process: its exit code, what it prints, and what it complains about."""

    def ended(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["hotswap", *words])
        with pytest.raises(SystemExit) as left:
            main()
        printed, complaint = capsys.readouterr()
        return left.value.code, printed, " ".join(complaint.replace("│", "").split())

    return ended


Run = Callable[..., tuple[object, str, str]]


def test_help_teaches() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "demo" in shown
    assert "data" in shown
    assert "without choosing a learning rate" in shown
    assert "four minutes" in CliRunner().invoke(app, ["demo", "--help"]).output.lower()
    assert "checked" in CliRunner().invoke(app, ["data", "--help"]).output
    assert {f"`{name}`," for name in STUDIES} <= set(CliRunner().invoke(app, ["study", "run", "--help"]).output.split())


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"hotswap {__version__}"


def test_a_mistake_is_one_sentence(run: Run) -> None:
    code, _, complaint = run("data", "get", "imagenet")
    assert code == 2
    assert "There is no data set 'imagenet'; there are cifar10, digits, fashion_mnist, mnist." in complaint


def test_a_folder_that_cannot_be_written_is_noticed_before_any_training(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, printed, complaint = run("demo", "--out", str(tmp_path / "file" / "below"))
    assert code == 1
    assert "cannot be written to" in complaint
    assert "steps" not in printed


def test_data_list() -> None:
    assert "mnist" in CliRunner().invoke(app, ["data", "list"]).output.split()


@pytest.mark.mnist
def test_data_get() -> None:
    shown = CliRunner().invoke(app, ["data", "get", "mnist"]).output
    assert "60000 train and 10000 test images" in " ".join(shown.split())


def test_a_batch_larger_than_the_data_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, complaint = run("demo", "--batch-size", "60000", "--out", str(tmp_path))
    assert code == 1
    assert complaint.startswith("Error: The demo's batch size is 60000")


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
