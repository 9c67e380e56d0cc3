"""Tidy tables out of a study's rows: pure functions of data frames."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

__all__ = ["ALGORITHM_NAMES", "SETTING", "at_epoch", "best_sgd", "label", "settings", "shown_epochs", "window_mean"]

SETTING = ["algorithm", "batch_size", "lr", "lr_decay", "momentum"]
"""What makes a setting; its runs differ by their seed alone."""

ALGORITHM_NAMES = {"ducb": "DUCB", "adadelta": "AdaDelta", "sgd": "SGD"}


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

    Columns: those of `SETTING`, `seeds`, and `train_nll`, `test_error`, each also with `_min` and `_max`.
    """
    rows = at_epoch(metrics, epoch)
    measures = {
        f"{name}{suffix}": (name, how)
        for name in ("train_nll", "test_error")
        for suffix, how in (("", "median"), ("_min", "min"), ("_max", "max"))
    }
    grouped = rows.groupby(SETTING, dropna=False, sort=True).agg(seeds=("seed", "nunique"), **measures)
    table: pd.DataFrame = grouped.reset_index()
    return table


def label(row: pd.Series) -> str:
    """A setting in words: `SGD, batch 64, rate 0.1 × 0.99 per epoch, momentum 0.9`."""
    text = f"{ALGORITHM_NAMES.get(row['algorithm'], row['algorithm'])}, batch {int(row['batch_size'])}"
    if not pd.isna(row["lr"]):
        decay = "" if row["lr_decay"] == 1 else f" × {row['lr_decay']:g} per epoch"
        text += f", rate {row['lr']:g}{decay}, momentum {row['momentum']:g}"
    return text


def best_sgd(metrics: pd.DataFrame) -> list[str]:
    """The SGD runs chosen in retrospect: lowest training loss and lowest test error at the end; one if it has both."""
    rows = at_epoch(metrics, int(metrics["epoch"].max())) if len(metrics) else metrics
    rows = rows[rows["algorithm"] == "sgd"]
    if rows.empty:
        return []
    chosen = []
    for name in ("train_nll", "test_error"):
        known = rows.dropna(subset=name)
        if len(known):
            chosen.append(str(known.loc[known[name].idxmin(), "run"]))
    return list(dict.fromkeys(chosen))


def window_mean(metrics: pd.DataFrame, column: str, after: int, until: int, by: Sequence[str]) -> pd.Series:
    """The mean of a column over the recorded epochs in `(after, until]`, by group."""
    rows = metrics[(metrics["epoch"] > after) & (metrics["epoch"] <= until)]
    means: pd.Series = rows.groupby(list(by))[column].mean()
    return means
