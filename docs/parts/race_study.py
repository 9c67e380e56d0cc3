"""Races on the paper's problem, as Markdown: their leaders beside the paper's algorithm, AdaDelta and SGD."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
from measured import ROOT, table

from hotswap.errors import StudyError
from hotswap.report.extensions import shipped_results
from hotswap.report.extensions.comparison import tenth
from hotswap.report.extensions.costs import PASSES
from hotswap.report.origin import origin_of
from hotswap.report.results import Results, load_results
from hotswap.report.summaries import settings_among

FOLDER = ROOT / "results" / "races"
NOT_YET = "The study has not been run yet, so there is nothing to tell."


@cache
def lengths(folder: Path = FOLDER) -> dict[int, Results]:
    """The studies of races in the repository, by their number of epochs, the shortest first."""
    found = {}
    for part in sorted(folder.glob("*")):
        try:
            results = load_results(part)
        except StudyError:
            continue
        found[results.planned_epochs] = results
    return dict(sorted(found.items()))


def races() -> str:
    """Objective and test error of races of each length, beside what others had after as many epochs; or a sentence."""
    shipped = shipped_results()
    if not lengths() or shipped is None:
        return NOT_YET
    parts = [_table(epochs, results, shipped) for epochs, results in lengths().items()]
    return "\n\n".join([*parts, *(f"*{origin_of(results).sentence()}*" for results in lengths().values())])


def _table(epochs: int, results: Results, shipped: Results) -> str:
    sizes = sorted(int(size) for size in results.metrics["batch_size"].unique())
    ours, theirs = (found.metrics[found.metrics["epoch"] == epochs] for found in (results, shipped))
    rows = {"race": ours, "the paper's algorithm": theirs[theirs["algorithm"] == "ducb"]}
    rows["AdaDelta"] = theirs[theirs["algorithm"] == "adadelta"]
    sgd = theirs[theirs["algorithm"] == "sgd"]
    settings = sgd.groupby(settings_among(sgd), dropna=False)[["train_nll", "test_error"]].median().reset_index()
    ranked = settings.sort_values("train_nll").groupby("batch_size")
    rows["the median of the best tenth of SGD's settings"] = ranked.head(tenth(len(settings) // len(sizes)))
    rows["the best of SGD's settings"] = ranked.head(1)
    cells = [
        (who, *(_cell(found[found["batch_size"] == size]) for size in sizes), _cost(found, epochs))
        for who, found in rows.items()
    ]
    title = f"**{epochs} epochs: training objective and test error, medians over seeds**"
    return f"{title}\n\n" + table(("", *(f"batch {size}" for size in sizes), "cost of an epoch"), cells)


def _cell(rows: pd.DataFrame) -> str:
    return f"{rows['train_nll'].median():.1e}, {rows['test_error'].median():.2%}"


def _cost(rows: pd.DataFrame, epochs: int) -> str:
    """Forward passes over those of plain epochs; of the paper's algorithm, by its trials in that epoch."""
    if "passes" in rows and rows["passes"].notna().all():
        return f"{(rows['passes'] / (PASSES * rows['steps'])).median():.2f}"
    trials = rows["trials"].median() if "trials" in rows else 0.0
    return f"{1 + trials / PASSES:.2f}"


BLOCKS: dict[str, Callable[[], str]] = {"races": races}
