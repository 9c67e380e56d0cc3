"""Studies that are run, stopped, killed and taken up again, at toy size on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.errors import SettingError, StudyError
from hotswap.store.folder import ABOUT
from hotswap.studies import AdaDeltaFamily, DucbFamily, NetworkSpec, SgdFamily, StudySpec, plan
from hotswap.studies.folder import Store, UnitSummary
from hotswap.studies.run import run_study
from hotswap.studies.training import RunOptions, Training
from tests.children import PATIENCE, child, hotswap_command
from tests.work.gates import Gate, wait_until

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
SILENT: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
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

    def planned(self, done: int, known: int) -> None:
        pass

    def begins(self, unit: str, at: int, end: int, of: str) -> None:
        self.began.append((unit, at))

    def reaches(self, unit: str, at: int, alive: int = 1, runs: int = 1) -> None:
        self.epochs += 1
        if self.epochs == self.stop_at:
            raise KeyboardInterrupt

    def ends(self, unit: str, how: str, why: str = "") -> None:
        pass


def run(folder: Path, study: StudySpec = TOY, options: RunOptions = OPTIONS, listener: Quiet | None = None) -> Quiet:
    listener = listener or Quiet()
    run_study(Store.create(folder, study, precision=options.precision), study, load_digits(), options, listener)
    return listener


def tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    store = Store.open(folder)
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
    latest = 1 if after % 6 == 1 else 2
    assert any(f"going on from the checkpoint after epoch {latest}" in said for said in again.said)
    assert_same(tmp_path, whole)


def test_stopping_after_some_minutes_keeps_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    stopped = run(tmp_path, options=RunOptions(stop_after=1e-9))
    assert stopped.epochs <= 1
    minutes = 1e-3
    while any(unit.state != "done" for unit in units(tmp_path)):
        run(tmp_path, options=RunOptions(stop_after=minutes))
        minutes *= 1.1  # a busy machine may need longer than that to come to an epoch at all
    assert_same(tmp_path, whole)


def toy_command(
    tmp_path: Path, epochs: int = 6, *, background: bool = False, before: tuple[str, ...] = ()
) -> tuple[list[str], Path]:
    """The command line that runs the toy study, and the folder it fills."""
    study, folder = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(TOML.format(epochs=epochs))
    return hotswap_command(*before, "study", "run", str(study), "--out", str(folder), background=background), folder


def units(folder: Path) -> tuple[UnitSummary, ...]:
    """Where each unit stands; none while there is no study."""
    return Store.open(folder).summary().units if (folder / ABOUT).exists() else ()


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    while not happened():
        assert process.poll() is None
        time.sleep(0.01)


def furthest(folder: Path) -> int:
    return max((unit.epochs_done for unit in units(folder)), default=0)


def test_killed_and_taken_up_again_by_two_processes_that_share_the_work(whole: Path, tmp_path: Path) -> None:
    """`kill -9` at some moment of a study of the command line, and the same command again at once, twice."""
    command, folder = toy_command(tmp_path)
    with child(command, **SILENT) as process:
        wait_for(process, lambda: bool(list(folder.glob("checkpoints/ducb-b64-*/*.hotswap"))))
        process.kill()
        process.wait()
    assert all(unit.state != "running" for unit in units(folder))
    with child(command, stdout=subprocess.PIPE) as one, child(command, stdout=subprocess.PIPE) as other:
        for process in (one, other):
            process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
    assert [len(done) for done in Store.open(folder).provenance().values()] == [1] * 6  # each unit once
    assert_same(folder, whole)


def test_a_command_that_is_killed_or_stopped_goes_on_from_where_status_says(tmp_path: Path) -> None:
    """`kill -9`, then SIGINT, then SIGTERM to a command in the background, which leaves Ctrl-C to others."""
    command, folder = toy_command(tmp_path, epochs=100_000)
    with child(command, **SILENT) as process:
        wait_for(process, lambda: furthest(folder) >= 10)
        (running,) = [unit for unit in units(folder) if unit.epochs_done]
        assert (running.state, running.where) == ("running", f"process {process.pid}")
        assert running.kept >= 1
        process.kill()
        process.wait()
    (left,) = [unit for unit in units(folder) if unit.epochs_done]
    assert left.state == "left"
    shown = status(folder)
    assert f"{left.id} 2 {left.epochs_done}/100000 {left.kept} left" in shown
    again = "goes on from the epochs that are kept; those after them are trained again" in shown
    assert again == (left.kept < left.epochs_done)
    kept = left.kept
    for number, background in ((signal.SIGINT, False), (signal.SIGTERM, True)):
        command, _ = toy_command(tmp_path, epochs=100_000, background=background)
        start = furthest(folder)
        with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_for(process, lambda start=start: furthest(folder) >= start + 5)
            if background:
                process.send_signal(signal.SIGINT)
                before = furthest(folder)
                wait_for(process, lambda before=before: furthest(folder) >= before + 20)
            process.send_signal(number)
            said, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + number
        assert "Stopped. Run the same command again to go on from the last checkpoint." in complaint
        assert f"{left.id}: going on from the checkpoint after epoch {kept}." in said
        assert "put aside after" in said  # a line for a file, where no bars can be drawn
        (begun,) = [unit for unit in units(folder) if unit.epochs_done]
        assert begun.kept == begun.epochs_done
        kept = begun.kept


def status(folder: Path) -> str:
    """What `hotswap study status` prints, with single spaces."""
    return " ".join(CliRunner(env={"COLUMNS": "200"}).invoke(app, ["study", "status", str(folder)]).output.split())


def test_status_before_the_first_epochs(tmp_path: Path) -> None:
    Store.create(tmp_path, TOY, precision="fp32")
    shown = status(tmp_path)
    assert "0 of 6 units done; spent: 0 s, left: not known before the first epochs" in shown
    assert "adadelta-b64 2 0/6 0 left" in shown
    assert "trained again" not in shown


def test_status_of_a_unit_that_stopped_between_recorded_epochs(tmp_path: Path) -> None:
    store, listener = Store.create(tmp_path, TOY, precision="fp32"), Quiet()
    run_study(store, TOY, load_digits(), RunOptions(), listener, lambda: listener.epochs >= 2)
    (begun,) = [unit for unit in units(tmp_path) if unit.epochs_done]
    assert (begun.epochs_done, begun.kept, begun.state) == (3, 3, "left")  # recorded after epochs 1, 2, 5 and 6
    assert begun.seconds_left is not None
    assert begun.seconds_left > 0
    assert run(tmp_path).began[0] == (begun.id, 3)


def test_asked_to_stop_it_does_so_at_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    for _ in range(100):
        store, listener = Store.create(tmp_path, TOY, precision="fp32"), Quiet()
        outcome = run_study(store, TOY, load_digits(), RunOptions(), listener, lambda seen=listener: seen.epochs >= 4)
        if not outcome.left:
            break
        assert listener.epochs in (4, 5)  # the epoch that was being trained is finished, and nothing is trained twice
    assert not outcome.left
    assert_same(tmp_path, whole)


def test_in_several_processes_of_which_one_is_killed(whole: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, "ducb-b64", epoch=3)
    command, folder = toy_command(tmp_path, before=("--load", str(gate.file)))
    with child([*command, "--jobs", "2"], stdout=subprocess.PIPE) as process:
        pid = gate.process("ducb-b64")
        assert any(unit.where.endswith(f"process {pid}") for unit in units(folder))
        os.kill(pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "All 40 runs are finished" in said
    assert "ducb-b64: going on from the checkpoint after epoch 3." in said
    assert_same(folder, whole)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_epoch_without_an_end_does_not_keep_a_command_that_is_to_stop(tmp_path: Path, jobs: str) -> None:
    gate = Gate(tmp_path, "ducb-b64", epoch=3, heeds=False)
    command, folder = toy_command(tmp_path, before=("--load", str(gate.file)))
    with child([*command, "--jobs", jobs], stdout=subprocess.PIPE) as process:
        pid = gate.process("ducb-b64")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < 10 or jobs == "1"  # a busy machine
    assert process.returncode == 128 + signal.SIGTERM
    assert "Stopped. Run the same command again to go on" in said
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert {unit.id: unit.kept for unit in units(folder)}["ducb-b64"] == 3


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
    found = sorted(folder.glob("*.hotswap"))
    assert [path.name for path in found] == ["epoch-000002.hotswap", "epoch-000004.hotswap"]
    found[-1].write_bytes(found[-1].read_bytes()[:-7] + b"damaged")
    again = run(tmp_path)
    assert "The checkpoint epoch-000004.hotswap cannot be used" in again.said[0]
    assert ("adadelta-b64", 2) in again.began
    assert_same(tmp_path, whole)


def test_the_first_checkpoint_comes_after_the_first_recorded_epoch(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, options=RunOptions(), listener=Quiet(stop_at=1))
    (folder,) = tmp_path.glob("checkpoints/*")
    assert [path.name for path in folder.iterdir()] == ["epoch-000001.hotswap"]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, options=RunOptions(), listener=Quiet(stop_at=3))  # a minute has not passed since then
    assert [unit.kept for unit in units(tmp_path) if unit.epochs_done] == [1]


def test_the_last_two_checkpoints_are_kept(whole: Path) -> None:
    for unit in plan(TOY):
        (folder,) = whole.glob(f"checkpoints/{unit.id}-*")
        names = {path.name for path in folder.iterdir()}
        kept = {f"epoch-00000{n}-kept.hotswap" for n in (1, 3, 6)}
        last = {f"epoch-00000{n}.hotswap" for n in (4, 6)}
        assert names == (last | kept if unit.algorithm == "ducb" else last)


def test_a_full_disk_is_said_and_nothing_is_lost(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, real = 0, os.fsync

    def full(file: int) -> None:
        nonlocal written
        written += 1
        if written > 11:
            raise OSError(28, "No space left on device")
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StudyError, match=r"The disk is full: .* What was stored before is safe; make room and run"):
            run(tmp_path)
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".folder.lock"]  # nothing half-written
    run(tmp_path)
    assert_same(tmp_path, whole)


def test_what_an_algorithm_measures_of_its_own_is_recorded_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = TOY.select(batch_sizes=[128], seeds=1, epochs=1)
    monkeypatch.setattr(DucbFamily, "measures", ("mean_lr", "trials", "walked"))
    with pytest.raises(SettingError, match="The algorithm ducb says that it measures walked, but its update tallies "):
        run(tmp_path / "missing", study)
    monkeypatch.setattr(
        Training,
        "_means",
        lambda training, _, name, place: dict.fromkeys(training.families[name].measures, float(place + 3)),
    )
    run(tmp_path / "there", study)
    metrics, _ = tables(tmp_path / "there")
    assert list(metrics.columns)[-1] == "walked"
    by_algorithm = metrics.groupby("algorithm")[["mean_lr", "trials", "walked"]].first()
    assert by_algorithm.loc["ducb"].tolist() == [3.0, 3.0, 3.0]
    assert by_algorithm["trials"].to_dict() == {"adadelta": 0.0, "ducb": 3.0, "sgd": 0.0}
    assert by_algorithm["mean_lr"].isna().to_dict() == {"adadelta": True, "ducb": False, "sgd": False}
    assert by_algorithm["walked"].isna().to_dict() == {"adadelta": True, "ducb": False, "sgd": True}


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
    new = runner.invoke(app, ["study", "new", str(tmp_path / "mine.toml")])
    assert new.exit_code == 0
    again = runner.invoke(app, ["study", "new", str(tmp_path / "mine.toml")])
    assert isinstance(again.exception, SettingError)
    nothing = runner.invoke(app, ["study", "run", "nothing.toml", "--out", str(tmp_path / "x")])
    assert isinstance(nothing.exception, SettingError)


def test_an_algorithm_that_is_not_in_the_study_is_refused_with_those_that_are(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(TOML.format(epochs=2))
    command = ["study", "run", str(study), "--out", str(tmp_path / "x"), "--algorithm", "lbfgs"]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, SettingError)
    assert "'lbfgs', which is not in the study; choose from sgd, adadelta, ducb" in str(refused.exception)
    assert not (tmp_path / "x").exists()
