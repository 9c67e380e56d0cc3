"""The price of tuning: what a random search over SGD's settings finds with k trainings, against one run of DUCB.

A person tries k of the N settings, drawn without replacement, and keeps the best. With the settings' results sorted,
v₁ ≤ … ≤ v_N, the best of them is v_i with probability C(N − i, k − 1) / C(N, k).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hotswap.report.summaries import settings

__all__ = ["Tuning", "best_of", "price_of_tuning"]

Numbers = NDArray[np.float64]
Measure = Literal["train_nll", "test_error"]


@dataclass(frozen=True)
class Tuning:
    """One measure's curve."""

    measure: Measure
    expected: Numbers
    """`(N,)` the expected best of 1, 2, …, N settings."""
    low: Numbers
    """`(N,)` the best of k is below this in one of ten draws."""
    high: Numbers
    """`(N,)` and above this in one of ten."""
    ducb: pd.Series
    """DUCB's median over seeds, by batch size."""

    @property
    def one_run(self) -> float:
        """What one run of DUCB gets whose batch size was chosen without thought: the median over batch sizes."""
        return float(self.ducb.median())

    def caught_up(self, value: float) -> int | None:
        """The smallest k whose expected best is no worse than `value`; None if no search gets there."""
        reached = np.flatnonzero(self.expected <= value)
        return int(reached[0]) + 1 if len(reached) else None


def price_of_tuning(metrics: pd.DataFrame, measure: Measure) -> Tuning | None:
    """The curve at the last epoch, each setting worth the median of its seeds; None where SGD or DUCB is missing.

    A setting that diverged counts as bad as the worst that did not.
    """
    if metrics.empty:
        return None
    table = settings(metrics, int(metrics["epoch"].max()))
    ours = table[table["algorithm"] == "ducb"].set_index("batch_size")[measure].sort_index()
    theirs = table.loc[table["algorithm"] == "sgd", measure].to_numpy()
    finite = theirs[np.isfinite(theirs)]
    ours = ours[np.isfinite(ours)]
    if ours.empty or len(finite) == 0:
        return None
    theirs = np.where(np.isfinite(theirs), theirs, finite.max())  # who tried it has paid for it: as bad as the worst
    expected, low, high = best_of(theirs)
    return Tuning(measure, expected, low, high, ours)


def best_of(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The smallest of 1 … N values drawn without replacement: its mean, its tenth and its ninetieth percentile.

    `(N,)` gives three times `(N,)`.
    """
    values = np.sort(np.asarray(values, dtype=float))
    count = len(values)
    expected, low, high = (np.empty(count) for _ in range(3))
    none_yet = np.ones(count)  # with k draws, the chance that none is among the i + 1 smallest
    remaining = count - 1 - np.arange(count)
    for k in range(1, count + 1):
        none_yet = none_yet * np.maximum(remaining - (k - 1), 0) / (count - (k - 1))
        reached = 1 - none_yet
        chances = np.diff(reached, prepend=0.0)
        expected[k - 1] = chances @ values
        low[k - 1] = values[np.searchsorted(reached, 0.1)]
        high[k - 1] = values[min(int(np.searchsorted(reached, 0.9)), count - 1)]
    return expected, low, high
