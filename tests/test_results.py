"""The results in the repository are what they say they are."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hotswap.studies import PAPER
from hotswap.studies.exchange import import_files, origin
from hotswap.studies.store import Store

PARTS = Path(__file__).parents[1] / "results" / "parts"
TABLES = [path for path in sorted(PARTS.glob("*/*.parquet")) if ".arms." not in path.name]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All parts, merged into one study of the paper, which checks their checksums and that they agree."""
    folder = tmp_path_factory.mktemp("merged")
    first = origin(TABLES[0])
    with Store.create(folder, first.study, precision=first.precision, dtype=first.dtype) as store:
        import_files(store, TABLES)
    return folder


def test_the_parts_are_of_the_papers_study(merged: Path) -> None:
    assert TABLES
    with Store.open(merged) as store:
        assert store.fingerprint == PAPER.fingerprint()
        metrics, arms = store.metrics(), store.arms()
        provenance = store.provenance()
    known = {run.id for run in PAPER.runs()}
    finished = metrics[metrics["epoch"] == PAPER.epochs]
    assert set(metrics["run"]) <= known
    assert len(finished) == metrics["run"].nunique() == 30
    assert (metrics.groupby("run")["epoch"].nunique() == len(PAPER.recorded_epochs())).all()
    assert set(arms["run"]) == {run for run in metrics["run"] if run.startswith("ducb")}
    for done in provenance.values():
        for entry in done:
            assert {"torch", "device", "precision", "command", "date", "seconds"} <= set(entry)


def test_every_step_is_accounted_for(merged: Path) -> None:
    """Steps follow from batch size and epoch; arms taken are at most the steps of an epoch."""
    with Store.open(merged) as store:
        metrics, arms = store.metrics(), store.arms()
    per_epoch = 50_000 // metrics["batch_size"]
    assert (metrics["steps"] == per_epoch * metrics["epoch"]).all()
    taken = arms.groupby(["run", "epoch"])["count"].sum()
    rows = metrics[metrics["algorithm"] == "ducb"].set_index(["run", "epoch"])
    assert (taken <= 50_000 // rows.loc[taken.index, "batch_size"]).all()
    assert (rows["trials"] >= 1).all()


def test_medians_at_the_end(merged: Path) -> None:
    """Recomputed from the rows: at equal batch size DUCB ends below AdaDelta, and every run learned the digits."""
    with Store.open(merged) as store:
        metrics = store.metrics()
    last = metrics[metrics["epoch"] == PAPER.epochs]
    medians = last.groupby(["algorithm", "batch_size"])["train_nll"].median().unstack("algorithm")
    assert isinstance(medians, pd.DataFrame)
    assert (medians["ducb"] < medians["adadelta"]).all()
    assert last["test_error"].between(0.015, 0.02).all()
