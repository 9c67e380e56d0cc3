"""The best runs of a tuned algorithm in retrospect, which stand for all of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["best_runs", "best_sgd"]


def best_runs(metrics: pd.DataFrame, algorithm: str) -> list[str]:
    """The runs of an algorithm with the lowest training loss and the lowest test error at the study's last epoch.

    Returns their ids: one if the same run has both, none if the algorithm has no runs that went so far. NaN counts as
    worst and is never chosen.
    """
    if metrics.empty:
        return []
    last = metrics[(metrics["algorithm"] == algorithm) & (metrics["epoch"] == metrics["epoch"].max())]
    chosen = []
    for name in ("train_nll", "test_error"):
        known = last.dropna(subset=name)
        if len(known):
            chosen.append(str(known.loc[known[name].idxmin(), "run"]))
    return list(dict.fromkeys(chosen))


def best_sgd(metrics: pd.DataFrame) -> list[str]:
    """The runs of SGD that were best in retrospect. See `best_runs`."""
    return best_runs(metrics, "sgd")
