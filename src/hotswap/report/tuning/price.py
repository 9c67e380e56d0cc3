"""The price of tuning: what a search over an algorithm's settings finds with k trainings, and how many it takes.

In the paper's study, the settings are SGD's, and one run of DUCB, which has no rate to tune, is what they are compared
with. Every setting was trained, so that a search is a row of look-ups.

**Random search** (Bergstra and Bengio, 2012): k of the N settings, drawn without replacement. With the results of all
settings sorted, v₁ ≤ … ≤ v_N, the best of k is v_i with probability C(N − i, k − 1) / C(N, k), and one of the m that
match a value is among them with probability 1 − C(N − m, k) / C(N, k). So nothing has to be drawn.

**Bayesian search** (Snoek, Larochelle and Adams, 2012): see `hotswap.report.tuning.bayesian`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from hotswap.report.looks import Looks
from hotswap.report.tuning.space import Measure, Numbers, Space, space_of

__all__ = ["Found", "Searched", "Trainings", "Tuning", "best_of", "price_of_tuning", "searched"]

LOW, HALF, HIGH = 0.1, 0.5, 0.9


class Trainings(NamedTuple):
    """How many trainings searches take until they match a value."""

    median: int
    low: int
    """One of ten searches takes no more."""
    high: int
    """Nine of ten take no more."""


@dataclass(frozen=True)
class Found:
    """What searches have found after 1, 2, …, N trainings: the best of them."""

    expected: Numbers
    """`(N,)` on average."""
    low: Numbers
    """`(N,)` it is below this in one of ten searches."""
    high: Numbers
    """`(N,)` and above this in one of ten."""

    def caught_up(self, value: float) -> int | None:
        """The smallest k whose expected best is no worse than `value`; None if no search gets there."""
        reached = np.flatnonzero(self.expected <= value)
        return int(reached[0]) + 1 if len(reached) else None


@dataclass(frozen=True)
class Searched(Found):
    """What searches have found that were made one by one."""

    bests: Numbers
    """`(S, N)` the best of the first k trainings of each."""

    def until(self, value: float) -> Trainings | None:
        """How many trainings it takes to match a value; None if no search gets there."""
        reached = self.bests <= value
        return _trainings(reached.mean(axis=0)) if reached[:, -1].all() else None


@dataclass(frozen=True)
class Tuning(Found):
    """One measure's random search, and the Bayesian one where somebody has made it."""

    space: Space
    bayesian: Searched | None = None

    @property
    def measure(self) -> Measure:
        """What is compared."""
        return self.space.measure

    @property
    def tuned(self) -> str:
        """The algorithm whose settings are searched."""
        return self.space.tuned

    @property
    def reference(self) -> str:
        """The algorithm that chooses its rate itself."""
        return self.space.reference

    @property
    def levels(self) -> pd.Series:
        """What the reference reaches by batch size, the median over its seeds."""
        return self.space.levels

    @property
    def one_run(self) -> float:
        """What one run of the reference gets at a batch size chosen without thought: the median over batch sizes."""
        return float(self.levels.median())

    def until(self, value: float) -> Trainings | None:
        """How many trainings a random search takes to match a value; None if no setting does."""
        count, good = len(self.space.values), int((self.space.values <= value).sum())
        k = np.arange(count)
        none_yet = np.cumprod(np.maximum(count - good - k, 0) / (count - k))
        return _trainings(np.asarray(1 - none_yet, dtype=float)) if good else None


def price_of_tuning(
    metrics: pd.DataFrame,
    measure: Measure,
    looks: Looks | None = None,
    orders: Sequence[Sequence[int]] | None = None,
) -> Tuning | None:
    """The curves at the last epoch, each setting worth the median of its seeds; None where `space_of` has nothing.

    `orders` are Bayesian searches of that space: which settings each has tried, until it had the best.
    """
    space = space_of(metrics, measure, looks)
    if space is None:
        return None
    return Tuning(*best_of(space.values), space, searched(space, orders) if orders else None)


def searched(space: Space, orders: Sequence[Sequence[int]]) -> Searched:
    """What searches have found; after their end, the best of all settings."""
    bests = np.full((len(orders), len(space.values)), space.values.min())
    for row, order in zip(bests, orders, strict=True):
        row[: len(order)] = np.minimum.accumulate(space.values[list(order)])
    low, high = np.quantile(bests, (LOW, HIGH), axis=0, method="inverted_cdf")
    return Searched(bests.mean(axis=0), low, high, bests)


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
        low[k - 1] = values[np.searchsorted(reached, LOW)]
        high[k - 1] = values[min(int(np.searchsorted(reached, HIGH)), count - 1)]
    return expected, low, high


def _trainings(reached: Numbers) -> Trainings:
    """From the chance that a search is there after 1, 2, …, N trainings."""
    low, half, high = (int(np.searchsorted(reached, share - 1e-12)) + 1 for share in (LOW, HALF, HIGH))
    return Trainings(half, low, high)
