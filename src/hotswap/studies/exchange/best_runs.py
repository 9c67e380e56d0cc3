"""The runs of SGD that a person would have chosen in retrospect."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["best_sgd"]


def best_sgd(metrics: pd.DataFrame) -> list[str]:
    """The ids of the SGD runs with the lowest training loss and the lowest test error at the last epoch.

    One id if one run has both. A loss that is not a number counts as infinite, and a run without a test error has no
    chance of the lowest.
    """
    if metrics.empty:
        return []
    last = metrics[(metrics["algorithm"] == "sgd") & (metrics["epoch"] == metrics["epoch"].max())]
    if last.empty:
        return []
    chosen = [str(last.loc[last["train_nll"].fillna(math.inf).idxmin(), "run"])]
    errors = last["test_error"].dropna()
    if len(errors):
        chosen.append(str(last.loc[errors.idxmin(), "run"]))
    return list(dict.fromkeys(chosen))
