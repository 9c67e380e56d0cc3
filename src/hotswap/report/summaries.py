"""Tidy tables out of a study's rows: pure functions of data frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from hotswap.report.looks import Looks
from hotswap.studies.algorithms.base import ALGORITHMS
from hotswap.studies.rows import METRIC_COLUMNS

if TYPE_CHECKING:
    from hotswap.report.results import Results

__all__ = [
    "at_epoch",
    "chosen",
    "label",
    "looks_of",
    "rates_of",
    "setting_counts",
    "settings",
    "settings_among",
    "settings_of",
    "shown_epochs",
    "trials_per_step",
    "window_mean",
]

COMMON_SETTINGS = ("lr", "lr_decay", "momentum")
"""The columns of every table that are settings. An algorithm that does not have one has NaN there."""


def settings_among(metrics: pd.DataFrame) -> list[str]:
    """The columns that make a setting, whose runs differ by their seed alone: `algorithm`, `batch_size`, and so on.

    A further column is a setting if an algorithm says that it varies it. Of a column that no algorithm here knows, or
    that one varies and another measures, the numbers decide: a setting is the same at all epochs and for all seeds.
    """
    varied = {name for kind in ALGORITHMS.values() for name in kind.varied()}
    measured = {name for kind in ALGORITHMS.values() for name in kind.measures}
    further = [name for name in metrics.columns if name not in METRIC_COLUMNS and metrics[name].notna().any()]
    sure = {name for name in further if name in varied - measured}
    unsure = [name for name in further if (name in varied) == (name in measured)]
    if unsure:
        sure |= _constant(metrics, unsure)
    return ["algorithm", "batch_size", *COMMON_SETTINGS, *(name for name in further if name in sure)]


def _constant(metrics: pd.DataFrame, columns: Sequence[str]) -> set[str]:
    """The columns that have at most one value in all rows of runs that differ by their seed alone."""
    without_seed = metrics["run"].str.replace(r"-s\d+$", "", regex=True)
    values = metrics.groupby(without_seed)[list(columns)].nunique(dropna=False).max()
    return {name for name in columns if values[name] <= 1}


def settings_of(row: pd.Series | Mapping[str, float], columns: Sequence[str]) -> dict[str, float]:
    """The settings in a row: these columns without algorithm, batch size and values that are not there."""
    names = [name for name in columns if name not in {"algorithm", "batch_size"}]
    return {name: float(row[name]) for name in names if not pd.isna(row[name])}


def looks_of(metrics: pd.DataFrame) -> Looks:
    """How the algorithms of a table are called and drawn, as far as the table alone can tell."""
    return Looks(metrics["algorithm"].unique(), settings=setting_counts(metrics))


def setting_counts(metrics: pd.DataFrame) -> dict[str, int]:
    """How many settings there are of each algorithm."""
    rows = metrics.drop_duplicates(settings_among(metrics))
    return {str(name): int(number) for name, number in rows["algorithm"].value_counts().items()}


def shown_epochs(metrics: pd.DataFrame) -> tuple[int, ...]:
    """The paper's two moments, 200 and 500 of 500: two fifths of the way, as near as was recorded, and the end."""
    if metrics.empty:
        return ()
    recorded = sorted(int(epoch) for epoch in metrics["epoch"].unique())
    last = recorded[-1]
    early = min(recorded, key=lambda epoch: (abs(epoch - 2 * last / 5), epoch))
    return tuple(sorted({early, last}))


def at_epoch(metrics: pd.DataFrame, epoch: int) -> pd.DataFrame:
    """The rows of one epoch; a training loss that is not a number counts as infinite, so that it can be ranked."""
    rows = metrics[metrics["epoch"] == epoch].copy()
    rows["train_nll"] = rows["train_nll"].fillna(math.inf)
    return rows


def settings(metrics: pd.DataFrame, epoch: int) -> pd.DataFrame:
    """One row per setting at an epoch: median, least and most of both measures over its seeds, and how many there are.

    Columns: those of `settings_among`, `seeds`, and `train_nll`, `test_error`, each also with `_min` and `_max`.
    """
    rows = at_epoch(metrics, epoch)
    measures = {
        f"{name}{suffix}": (name, how)
        for name in ("train_nll", "test_error")
        for suffix, how in (("", "median"), ("_min", "min"), ("_max", "max"))
    }
    grouped = rows.groupby(settings_among(metrics), dropna=False, sort=True).agg(seeds=("seed", "nunique"), **measures)
    table: pd.DataFrame = grouped.reset_index()
    return table


def label(row: pd.Series, looks: Looks | None = None, columns: Sequence[str] = COMMON_SETTINGS) -> str:
    """A setting in words: `SGD, batch 64, rate 0.1 × 0.99 per epoch, momentum 0.9`.

    Of an algorithm that is not registered, only the `columns` are known to be settings.
    """
    shown = (Looks() if looks is None else looks).of(str(row["algorithm"]))
    own = columns if shown.kind is None else [name for name in shown.kind.varied() if name in row.index]
    words = shown.describe(settings_of(row, own))
    return f"{shown.label}, batch {int(row['batch_size'])}" + (f", {words}" if words else "")


def window_mean(metrics: pd.DataFrame, column: str, after: int, until: int, by: Sequence[str]) -> pd.Series:
    """The mean of a column over the recorded epochs in `(after, until]`, by group."""
    rows = metrics[(metrics["epoch"] > after) & (metrics["epoch"] <= until)]
    means: pd.Series = rows.groupby(list(by))[column].mean()
    return means


# --- the bandit's choices over time -----------------------------------------------------------------------------------


def chosen(results: Results, algorithm: str | None = None) -> dict[int, pd.DataFrame]:
    """By batch size: the share of an epoch's steps in which each rate was taken, epochs × rates, the mean over seeds.

    Arms that have the same rate, and differ in something else, count together; the columns are numbered as the rates of
    `rates_of`. What is missing to 1 are steps in which nothing moved. Of the first algorithm that chooses, if none is
    named.
    """
    algorithm = algorithm or next(iter(results.arm_values), None)
    if results.arms.empty or results.metrics.empty or algorithm not in results.arm_values:
        return {}
    rates = rates_of(results, algorithm)
    places = {arm: rates.index(rate) for arm, rate in enumerate(results.arm_values[algorithm])}
    runs = results.metrics[results.metrics["algorithm"] == algorithm].drop_duplicates("run").set_index("run")
    arms = results.arms[results.arms["run"].isin(runs.index)]
    arms = arms.assign(batch_size=runs.loc[arms["run"], "batch_size"].to_numpy(), rate=arms["arm"].map(places))
    steps = results.metrics.assign(per_epoch=results.metrics["steps"] // results.metrics["epoch"])
    per_epoch = steps.groupby("batch_size")["per_epoch"].first()
    seeds = arms.groupby(["batch_size", "epoch"])["run"].nunique()
    tables = {}
    for size, rows in arms.groupby("batch_size"):
        table = rows.pivot_table("count", "epoch", "rate", aggfunc="sum", fill_value=0)
        table = table.reindex(columns=range(len(rates)), fill_value=0)
        tables[int(size)] = table.div(seeds[size] * int(per_epoch[size]), axis=0)
    return tables


def rates_of(results: Results, algorithm: str) -> tuple[float, ...]:
    """The rates that an algorithm chose among, large to small, each once; none if it did not choose."""
    return tuple(sorted(set(results.arm_values.get(algorithm, ())), reverse=True))


def trials_per_step(metrics: pd.DataFrame, algorithm: str) -> dict[int, pd.Series]:
    """By batch size: an algorithm's trials per step, by epoch, the median over its runs."""
    rows = metrics[metrics["algorithm"] == algorithm]
    return {int(size): part.groupby("epoch")["trials"].median() for size, part in rows.groupby("batch_size")}
