"""Single runs, timed: what is measured, not how fast it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.ensemble import HotSwapped
from hotswap.errors import StudyError
from hotswap.studies import plan, timing
from hotswap.studies.export import export
from hotswap.studies.folder import Store
from hotswap.studies.run import run_study
from hotswap.studies.timing import time_minibatches
from hotswap.studies.training import RunOptions, assemble, milestones, set_up
from tests.studies.test_training import TOY, Quiet

SMALL = TOY.select(epochs=5)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    for part in (["ducb"], ["adadelta", "sgd"]):  # parts of one study, one after the other
        study = SMALL.select(algorithms=part)
        store = Store.create(folder, study, precision="fp32")
        run_study(store, study, load_digits(), RunOptions(checkpoint_epochs=2), Quiet())
    return folder


def test_milestones() -> None:
    assert milestones(500) == (100, 300, 500)
    assert milestones(1) == (1,)


@pytest.mark.parametrize("algorithm", ["sgd", "adadelta", "ducb"])
def test_short_epochs_are_timed_again_and_again_from_the_same_weights(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = SMALL.select(algorithms=[algorithm], seeds=1)
    held = set_up(study, load_digits(), RunOptions())
    ensemble, once = (assemble(study, plan(study)[0], held).ensemble for _ in range(2))
    for epoch in range(2):
        ensemble.train_epoch(epoch)
        once.train_epoch(epoch)
    once.train_epoch(2)
    now = iter(range(0, 10**6))  # a look at the clock takes a second, and an epoch as long
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(timing, "SECONDS", 7)
    seen = 0
    for taken, trials in timing._timed_epochs(ensemble, 2):
        assert taken == 1
        assert trials == once.tally().means.get("trials", [0.0])[0]
        for name, tensor in ensemble.update.state().items():
            assert torch.equal(tensor, once.update.state()[name]), name
        seen += 1
    assert seen == 7
    monkeypatch.setattr(timing, "SECONDS", 0)
    assert len(list(timing._timed_epochs(ensemble, 2))) == timing.REPEATS


def test_both_tables_and_the_single_runs(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0)
    done = CliRunner().invoke(app, ["study", "timing", str(finished)])
    assert done.exit_code == 0, done.output
    bundle = tmp_path / "bundle"
    written = export(Store.open(finished), bundle)
    assert [path.name for path in written] == [
        "metrics.parquet", "arms.parquet", "timing.parquet", "curves.parquet", "provenance.json",
    ]  # fmt: skip
    provenance = json.loads((bundle / "provenance.json").read_text(encoding="utf-8"))
    assert set(provenance["sha256"]) == {"metrics", "arms", "timing", "curves"}
    assert "ducb-b64" in provenance["singles"]
    table = pd.read_parquet(bundle / "timing.parquet")
    assert len(table) == 2 * (1 + 1 + 3)
    assert (table["milliseconds"] > 0).all()
    ducb = table[table["algorithm"] == "ducb"]
    assert sorted(set(ducb["epoch"])) == [1, 3, 5]
    assert (ducb["trials"] >= 1).all()
    steps = 640 // table["batch_size"]
    assert (table["seconds"] * 1e3 / steps).tolist() == pytest.approx(table["milliseconds"].tolist())

    curves = pd.read_parquet(bundle / "curves.parquet")
    assert {"ducb-b64-s0", "ducb-b128-s0", "adadelta-b64-s0", "adadelta-b128-s0"} <= set(curves["run"])
    assert curves[curves["algorithm"] == "sgd"]["run"].nunique() in (1, 2)
    metrics = Store.open(finished).metrics()
    together = metrics[metrics["run"] == "ducb-b64-s0"].set_index("epoch")["train_nll"]
    alone = curves[curves["run"] == "ducb-b64-s0"].set_index("epoch")["train_nll"]
    pd.testing.assert_series_equal(together, alone, rtol=1e-3)
    for _, run in curves.groupby("run"):
        assert run.sort_values("epoch")["seconds"].is_monotonic_increasing


def test_missing_weights_are_said_to_be_missing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0)
    shutil.copytree(finished, tmp_path / "copy")
    for path in (tmp_path / "copy").glob("checkpoints/ducb-b128-*/*-kept.hotswap"):
        path.unlink()
    with pytest.raises(StudyError, match="The weights of ducb-b128 after epoch 1 are not in"):
        list(time_minibatches(Store.open(tmp_path / "copy"), load_digits(), RunOptions()))


class Counting(HotSwapped):
    """Has a state without an axis for runs, as optimizers that count their steps do."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.number = torch.zeros((), dtype=torch.int64)

    def step(self, run: Callable[[str], None], number: int) -> None:
        super().step(run, number)
        self.number += 1

    def state(self) -> dict[str, torch.Tensor]:
        return {**super().state(), "number": self.number}


def test_what_all_runs_share_is_taken_up_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotswap.ensemble.HotSwapped", Counting)
    monkeypatch.setattr(timing, "SECONDS", 0)
    study = SMALL.select(algorithms=["ducb"], batch_sizes=SMALL.batch_sizes[:1], epochs=1)
    store = Store.create(tmp_path, study, precision="fp32")
    run_study(store, study, load_digits(), RunOptions(), Quiet())
    assert [row.epoch for row in time_minibatches(store, load_digits(), RunOptions())] == [1]
