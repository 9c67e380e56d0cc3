"""Studies that are half done, broken or odd get a report too: no stack trace, no warning, no untrue verdict."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hotswap.report import judge, load_results, write, write_report
from hotswap.report.results import Results
from hotswap.store.shipped import shipped
from hotswap.studies import PAPER, SgdFamily
from tests.report.made_up import results, timed

Change = Callable[[pd.DataFrame], pd.DataFrame]

FEWER = SgdFamily(lr=(1.0, 0.1, 0.01), lr_decay=(1.0,), momentum=(0.0, 0.9))
THIN = replace(PAPER, families=(FEWER, PAPER.family("adadelta"), PAPER.family("ducb")))
"""The paper's study with six of its 72 schedules of SGD: a report of it is written sooner."""


def thinned(metrics: pd.DataFrame) -> pd.DataFrame:
    return keep(metrics, run=[run.id for run in THIN.runs()])


@pytest.fixture(scope="module")
def thin() -> Results:
    whole = load_results()
    return Results("strange", (THIN,), thinned(whole.metrics), whole.arms, whole.timing, whole.curves)


@pytest.fixture
def without_figure_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The single runs that it shows are the same in all tests."""
    monkeypatch.setattr(write, "draw_figure_2", lambda *_: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The results that come with the package, fewer of them."""
    shutil.copytree(shipped(), tmp_path / "paper")
    metrics = tmp_path / "paper" / "metrics.parquet"
    thinned(pd.read_parquet(metrics)).to_parquet(metrics)
    return tmp_path / "paper"


def keep(rows: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    for name, values in columns.items():
        rows = rows[rows[name].isin(values)]
    return rows


def without_end(algorithm: str, until: int = 100) -> Change:
    return lambda m: m[(m["algorithm"] != algorithm) | (m["epoch"] <= until)]


def spoil(column: str, value: float, **which: Any) -> Change:
    def change(m: pd.DataFrame) -> pd.DataFrame:
        m = m.copy()
        m.loc[m.index.isin(keep(m, **which).index), column] = value
        return m

    return change


STRANGE: dict[str, Change] = {
    "SGD is not done": without_end("sgd"),
    "one batch size is done": lambda m: m[(m["batch_size"] == 64) | (m["epoch"] <= 100)],
    "one epoch": lambda m: keep(m, epoch=[1]),
    "SGD only": lambda m: keep(m, algorithm=["sgd"]),
    "DUCB only": lambda m: keep(m, algorithm=["ducb"]),
    "one batch size": lambda m: keep(m, batch_size=[64]),
    "no test error is a number": spoil("test_error", float("nan")),
    "no objective is a number": spoil("train_nll", float("nan")),
    "DUCB diverged at one batch size": spoil("train_nll", float("nan"), algorithm=["ducb"], batch_size=[256]),
    "an objective of zero": spoil("train_nll", 0.0, algorithm=["ducb"]),
    "an error of zero": spoil("test_error", 0.0, algorithm=["ducb"]),
}


@pytest.mark.parametrize("change", STRANGE.values(), ids=STRANGE.keys())
@pytest.mark.usefixtures("coarse", "without_figure_2")
def test_a_report_of_what_there_is(change: Change, thin: Results, tmp_path: Path) -> None:
    there = change(thin.metrics)
    made = replace(thin, metrics=there, arms=thin.arms.merge(there[["run", "epoch"]]))
    written = write_report(made, tmp_path)
    assert {"claims.md", "index.html"} <= {path.name for path in written}
    text = (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b|\binf\b", text)
    if made.unfinished:
        verdicts = [claim for claim in judge(made) if claim.number in (1, 2, 3, 4, 6, 7)]
        assert all(claim.verdict is None for claim in verdicts)
        assert all("no verdict" in claim.ours for claim in verdicts)


@pytest.mark.parametrize(
    "units",
    [{"x": []}, {"x": 5}, {"x": [{"seconds": None}]}, {"x": [{"seconds": 1.0}]}],
    ids=["none", "5", "null", "bare"],
)
@pytest.mark.usefixtures("undrawn")
def test_a_provenance_that_tells_nothing(units: Any, folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "provenance.json").read_text(encoding="utf-8")) | {"units": units}
    (folder / "provenance.json").write_text(json.dumps(document), encoding="utf-8")
    write_report(load_results(folder), tmp_path / "report")


def test_what_is_no_file(folder: Path) -> None:
    (folder / "arms.parquet").unlink()
    (folder / "arms.parquet").mkdir()
    assert any("arms.parquet cannot be read" in sentence for sentence in load_results(folder).missing)


def test_one_of_a_folders_files_means_the_folder() -> None:
    assert load_results(shipped() / "metrics.parquet").specs == load_results().specs


@pytest.mark.usefixtures("undrawn")
def test_without_a_grid_there_is_a_sentence_for_the_picture_that_is_missing(folder: Path, tmp_path: Path) -> None:
    (folder / "provenance.json").unlink()
    results = load_results(folder)
    assert any("no picture of what was chosen" in sentence for sentence in results.missing)
    assert "choices.png" not in {path.name for path in write_report(results, tmp_path / "r")}


@pytest.mark.parametrize("epochs", [(100,), (100, 500)])
def test_the_cost_is_not_judged_by_one_batch_size(epochs: tuple[int, ...]) -> None:
    timing = [timed("sgd", 64, 0, 1.0), *(timed("ducb", 64, epoch, 2.0) for epoch in epochs)]
    found = judge(results(timing=timing))[7]
    assert found.verdict is None
    assert "two batch sizes and two epochs" in found.ours
