"""Studies that are run, stopped, killed and taken up again, at toy size on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.ensemble import snapshots
from hotswap.errors import SettingError, StudyError
from hotswap.studies import AdaDeltaFamily, DucbFamily, NetworkSpec, SgdFamily, StudySpec, Unit, plan
from hotswap.studies.running.train import RunOptions, run_study
from hotswap.studies.storage.store import LEDGER, Store

TOY = StudySpec(
    name="toy",
    dataset="digits",
    train_images=640,
    network=NetworkSpec(hidden=(12, 8)),
    families=(
        SgdFamily(lr=(1.0, 0.1), lr_decay=(0.99, 1.0), momentum=(0.0, 0.9)),
        AdaDeltaFamily(),
        DucbFamily(count=9),
    ),
    batch_sizes=(64, 128),
    seeds=(0, 1),
    epochs=6,
)
OPTIONS = RunOptions(checkpoint_epochs=2)
TOML = """
name = "toy"
dataset = "digits"
train_images = 640
epochs = {epochs}
batch_sizes = [64, 128]
seeds = [0, 1]

[network]
hidden = [12, 8]

[sgd]
lr = [1.0, 0.1]
lr_decay = [0.99, 1.0]
momentum = [0.0, 0.9]

[adadelta]

[ducb]
count = 9
"""


class Quiet:
    """Remembers what it was told."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.said: list[str] = []
        self.began: list[tuple[str, int]] = []
        self.epochs = 0
        self.stop_at = stop_at

    def say(self, text: str) -> None:
        self.said.append(text)

    def unit_begins(self, unit: Unit, epoch: int, epochs: int) -> None:
        self.began.append((unit.id, epoch))

    def epoch_done(self, unit: Unit, epoch: int, alive: int, seconds: float) -> None:
        self.epochs += 1
        if self.epochs == self.stop_at:
            raise KeyboardInterrupt

    def unit_ends(self, unit: Unit, *, finished: bool) -> None:
        pass


def run(folder: Path, study: StudySpec = TOY, options: RunOptions = OPTIONS, listener: Quiet | None = None) -> Quiet:
    listener = listener or Quiet()
    with Store.create(folder, study, precision=options.precision) as store:
        run_study(store, study, load_digits(), options, listener)
    return listener


def tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    with Store.open(folder) as store:
        return store.metrics().drop(columns="seconds"), store.arms()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def assert_same(folder: Path, other: Path) -> None:
    for ours, theirs in zip(tables(folder), tables(other), strict=True):
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_every_run_is_measured_at_every_recorded_epoch(whole: Path) -> None:
    metrics, arms = tables(whole)
    assert len(TOY.runs()) == 40
    assert len(metrics) == 40 * len(TOY.recorded_epochs())
    assert set(metrics["run"]) == {run.id for run in TOY.runs()}
    last = metrics[metrics["epoch"] == 6]
    assert last["train_nll"].median() < 2.3
    best = last.groupby("algorithm")["test_error"].min()
    assert best["sgd"] < 0.3
    assert best["ducb"] < 0.6
    assert metrics[metrics["algorithm"] == "adadelta"]["mean_lr"].isna().all()
    ducb = metrics[metrics["algorithm"] == "ducb"]
    assert (ducb["trials"] >= 1).all()
    steps = arms[arms["epoch"] == 6].groupby("run")["count"].sum()
    assert (steps <= 10).all()
    assert set(arms["run"]) == set(ducb["run"])
    decayed = metrics[(metrics["run"] == "sgd-b64-lr0.1-decay0.99-mom0.9-s0") & (metrics["epoch"] == 6)]
    assert decayed["mean_lr"].item() == pytest.approx(0.1 * 0.99**5, rel=1e-6)
    assert decayed["steps"].item() == 60


def test_running_again_does_nothing(whole: Path) -> None:
    assert run(whole).began == []


def test_a_part_is_the_same_as_in_the_whole(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, TOY.select(algorithms=["ducb"], batch_sizes=[128], seeds=1))
    part, _ = tables(tmp_path)
    metrics, _ = tables(whole)
    same = metrics[metrics["run"] == "ducb-b128-s0"].reset_index(drop=True)
    pd.testing.assert_frame_equal(part, same, rtol=1e-4)  # float32, with other runs beside it


def test_more_seeds_do_not_take_over_the_weights_of_fewer(whole: Path, tmp_path: Path) -> None:
    """A unit of one seed and the same unit of two have one name, but not one checkpoint."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, TOY.select(seeds=1), listener=Quiet(stop_at=5))
    larger = run(tmp_path)
    assert all(epoch == 0 for _, epoch in larger.began)
    assert_same(tmp_path, whole)


@pytest.mark.parametrize("after", [1, 3, 14, 20])
def test_interrupted_and_taken_up_again(whole: Path, tmp_path: Path, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listener=Quiet(stop_at=after))
    again = run(tmp_path)
    if after % 6 >= 2:
        assert any("going on from the checkpoint after epoch 2" in said for said in again.said)
    assert_same(tmp_path, whole)


def test_stopping_after_some_minutes_keeps_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    stopped = run(tmp_path, options=RunOptions(stop_after=1e-9))
    assert stopped.epochs <= 1
    while run(tmp_path, options=RunOptions(stop_after=1e-3)).epochs:
        pass
    assert_same(tmp_path, whole)


def toy_command(tmp_path: Path, epochs: int = 6) -> tuple[list[str], Path]:
    """The command line that runs the toy study, and the folder it fills."""
    study, folder = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(TOML.format(epochs=epochs))
    command = [sys.executable, "-c", "from hotswap.cli import main; main()", "study", "run", str(study)]
    return [*command, "--out", str(folder)], folder


def test_killed_and_taken_up_again(whole: Path, tmp_path: Path) -> None:
    """`kill -9` at some moment of a study of the command line, and the same command again at once."""
    command, folder = toy_command(tmp_path)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(folder.glob("checkpoints/ducb-b64-*/*.sha256")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Store.open(folder) as store:
        assert all(unit.state != "running" for unit in store.summary().units)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "200"})
    assert "All 40 runs are finished" in done.stdout
    assert_same(folder, whole)


def test_asked_to_stop_it_does_so_at_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    for _ in range(100):
        listener = Quiet()
        with Store.create(tmp_path, TOY, precision="fp32") as store:
            done = run_study(store, TOY, load_digits(), RunOptions(), listener, lambda seen=listener: seen.epochs >= 4)
        if done:
            break
        assert listener.epochs in (4, 5)  # the epoch that was being trained is finished, and nothing is trained twice
    assert done
    assert_same(tmp_path, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_command_at_a_checkpoint_and_loses_nothing(number: int, tmp_path: Path) -> None:
    command, folder = toy_command(tmp_path, epochs=100_000)
    for attempt in range(2):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}
        )
        before = furthest(folder) if attempt else 0
        while not (folder / LEDGER).exists() or furthest(folder) < before + 5:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert "Stopped at a checkpoint. Run the same command again to go on from it." in complaint
        assert "put aside after" in said  # a line for a file, where no bars can be drawn
        assert ("going on from the checkpoint after epoch" in said) == bool(attempt)


def furthest(folder: Path) -> int:
    with Store.open(folder) as store:
        return max(unit.epochs_done for unit in store.summary().units)


def test_more_epochs_extend_a_finished_study(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, TOY.select(epochs=3))
    extended = run(tmp_path)
    assert {epoch for _, epoch in extended.began} == {3}
    ours, _ = tables(tmp_path)
    theirs, _ = tables(whole)
    kept = ours[ours["epoch"] != 3].reset_index(drop=True)  # the last epoch of the shorter study was recorded too
    pd.testing.assert_frame_equal(kept, theirs, check_exact=True)


def test_a_damaged_checkpoint_is_passed_over(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listener=Quiet(stop_at=5))
    (folder,) = tmp_path.glob("checkpoints/adadelta-b64-*")
    found = sorted(folder.glob("*.safetensors"))
    assert [path.name for path in found] == ["epoch-000002.safetensors", "epoch-000004.safetensors"]
    found[-1].write_bytes(found[-1].read_bytes()[:-7] + b"damaged")
    again = run(tmp_path)
    expected = "The checkpoint epoch-000004.safetensors cannot be used (it is damaged: its checksum does not match)"
    assert expected in again.said[0]
    assert ("adadelta-b64", 2) in again.began
    assert_same(tmp_path, whole)


def test_a_checkpoint_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("hotswap.ensemble.snapshots.FORMAT", 1)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, listener=Quiet(stop_at=5))
    again = run(tmp_path)
    assert "epoch-000004.safetensors cannot be used (another version of hotswap wrote it)" in again.said[0]
    assert ("adadelta-b64", 0) in again.began


def test_the_last_two_checkpoints_are_kept(whole: Path) -> None:
    for unit in plan(TOY):
        (folder,) = whole.glob(f"checkpoints/{unit.id}-*")
        names = {path.name for path in folder.iterdir()}
        kept = {f"epoch-00000{n}-kept.{end}" for n in (1, 3, 6) for end in ("safetensors", "sha256")}
        last = {f"epoch-00000{n}.{end}" for n in (4, 6) for end in ("safetensors", "sha256")}
        assert names == (last | kept if unit.algorithm == "ducb" else last)


def test_a_full_disk_is_said_and_nothing_is_lost(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def full(*arguments: Any, **named: Any) -> None:
        nonlocal written
        written += 1
        if written > 6:  # each unit begins with an early one
            raise OSError(28, "No space left on device")
        real(*arguments, **named)

    real = snapshots.save_file
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "save_file", full)
        with pytest.raises(StudyError, match="The disk is full: the checkpoint of adadelta-b128 after epoch 4"):
            run(tmp_path)
    assert not list(tmp_path.glob("checkpoints/*/.*"))  # nothing half-written
    run(tmp_path)
    assert_same(tmp_path, whole)


def test_two_processes_share_the_work(whole: Path, tmp_path: Path) -> None:
    command, folder = toy_command(tmp_path)
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    with Store.open(folder) as store:
        assert [len(done) for done in store.provenance().values()] == [1] * 6  # each unit once
    assert_same(folder, whole)


def test_a_study_that_does_not_fit_its_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="trains on 5000 images, but digits has 1442"):
        run(tmp_path, StudySpec(**{**vars(TOY), "train_images": 5000}))


def test_a_device_that_is_not_there_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(TOML.format(epochs=2))
    for device, said in (("tpu", "There is no device 'tpu'"), ("cuda", "There is no CUDA device here")):
        if device == "cuda" and torch.cuda.is_available():
            continue
        done = CliRunner().invoke(app, ["study", "run", str(study), "--out", str(tmp_path / "x"), "--device", device])
        assert said in str(done.exception)
    assert not (tmp_path / "x").exists()


def test_the_commands(whole: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["study", "status", str(whole)]).output
    assert "6 of 6 units done" in shown
    assert runner.invoke(app, ["study", "export", str(whole), str(tmp_path / "toy.parquet")]).exit_code == 0
    assert runner.invoke(app, ["study", "import", str(tmp_path / "copy"), str(tmp_path / "toy.parquet")]).exit_code == 0
    assert_same(tmp_path / "copy", whole)
    new = runner.invoke(app, ["study", "new", str(tmp_path / "mine.toml")])
    assert new.exit_code == 0
    again = runner.invoke(app, ["study", "new", str(tmp_path / "mine.toml")])
    assert isinstance(again.exception, SettingError)
    nothing = runner.invoke(app, ["study", "run", "nothing.toml", "--out", str(tmp_path / "x")])
    assert isinstance(nothing.exception, SettingError)
