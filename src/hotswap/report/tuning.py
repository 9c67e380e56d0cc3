"""The price of tuning: what a random search over an algorithm's settings finds with k trainings.

In the paper's study, the settings are SGD's, and one run of DUCB, which has no rate to tune, is what they are compared
with.

A person tries k of the N settings, drawn without replacement, and keeps the best. With the settings' results sorted,
v₁ ≤ … ≤ v_N, the best of them is v_i with probability C(N − i, k − 1) / C(N, k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hotswap.report.looks import Looks
from hotswap.report.summaries import looks_of, settings, settings_among

__all__ = ["Tuning", "best_of", "price_of_tuning"]

Numbers = NDArray[np.float64]
Measure = Literal["train_nll", "test_error"]


@dataclass(frozen=True)
class Tuning:
    """One measure's curve."""

    measure: Measure
    tuned: str
    """The algorithm whose settings are searched."""
    reference: str
    """The algorithm that chooses its rate itself."""
    expected: Numbers
    """`(N,)` the expected best of 1, 2, …, N settings."""
    low: Numbers
    """`(N,)` the best of k is below this in one of ten draws."""
    high: Numbers
    """`(N,)` and above this in one of ten."""
    levels: pd.Series
    """What the reference reaches by batch size, the median over its seeds."""

    @property
    def one_run(self) -> float:
        """What one run of the reference gets at a batch size chosen without thought: the median over batch sizes."""
        return float(self.levels.median())

    def caught_up(self, value: float) -> int | None:
        """The smallest k whose expected best is no worse than `value`; None if no search gets there."""
        reached = np.flatnonzero(self.expected <= value)
        return int(reached[0]) + 1 if len(reached) else None


def price_of_tuning(metrics: pd.DataFrame, measure: Measure, looks: Looks | None = None) -> Tuning | None:
    """The curve at the last epoch, each setting worth the median of its seeds.

    The algorithm with the most settings is searched; the first that chooses its rate itself is the reference. None
    where either is missing. A setting that diverged counts as bad as the worst that did not.
    """
    if metrics.empty:
        return None
    table = settings(metrics, int(metrics["epoch"].max()))
    reference, tuned = _pair(table, settings_among(metrics), looks or looks_of(metrics))
    levels = table[table["algorithm"] == reference].groupby("batch_size")[measure].median().sort_index()
    theirs = table.loc[table["algorithm"] == tuned, measure].to_numpy()
    finite = theirs[np.isfinite(theirs)]
    levels = levels[np.isfinite(levels)]
    if reference is None or tuned is None or levels.empty or len(finite) == 0:
        return None
    theirs = np.where(np.isfinite(theirs), theirs, finite.max())  # who tried it has paid for it: as bad as the worst
    return Tuning(measure, tuned, reference, *best_of(theirs), levels)


def _pair(table: pd.DataFrame, columns: Sequence[str], looks: Looks) -> tuple[str | None, str | None]:
    """Which algorithm is the reference, and which is searched: one that has settings beside the batch size."""
    own = [name for name in columns if name not in {"algorithm", "batch_size"}]
    counts = table.loc[table[own].notna().any(axis=1), "algorithm"].value_counts()
    there = set(table["algorithm"])
    reference = next((name for name in looks if name in there and looks[name].chooses), None)
    searched = [name for name in looks if name in counts and not looks[name].chooses]
    return reference, max(searched, key=lambda name: counts[name], default=None)


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
