"""The price of tuning: what a search over an algorithm's settings finds with k trainings, and how many it takes.

In the paper's study, the settings are SGD's, and one run of DUCB, which has no rate to tune, is what they are compared
with. Every setting was trained, so that a search is a row of look-ups.

**Random search** (Bergstra and Bengio, 2012): k of the N settings, drawn without replacement. With the results of all
settings sorted, v₁ ≤ … ≤ v_N, the best of k is v_i with probability C(N − i, k − 1) / C(N, k), and one of the m that
match a value is among them with probability 1 − C(N − m, k) / C(N, k). So nothing has to be drawn.

**Bayesian search** (Snoek, Larochelle and Adams, 2012): see `hotswap.report.bayesian`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hotswap.report.looks import Looks
from hotswap.report.summaries import looks_of, settings, settings_among

__all__ = [
    "MEASURES",
    "Found",
    "Measure",
    "Numbers",
    "Searched",
    "Space",
    "Trainings",
    "Tuning",
    "best_of",
    "price_of_tuning",
    "space_of",
]

Numbers = NDArray[np.float64]
Measure = Literal["train_nll", "test_error"]
MEASURES: tuple[Measure, ...] = ("train_nll", "test_error")
LOW, HALF, HIGH = 0.1, 0.5, 0.9


@dataclass(frozen=True)
class Space:
    """The N settings of the algorithm that is searched, and whom they are compared with."""

    measure: Measure
    tuned: str
    """The algorithm whose settings are searched."""
    reference: str
    """The algorithm that chooses its rate itself."""
    settings: pd.DataFrame
    """One row a setting, sorted: the columns in which settings differ."""
    values: Numbers
    """`(N,)` what training each of them comes to at the last epoch, the median of its seeds."""
    levels: pd.Series
    """The value that the reference reaches, by batch size: the median over its seeds."""

    @property
    def points(self) -> Numbers:
        """`(N, D)` the settings in the unit cube: each value by its place among all that a setting has.

        Who laid out a grid has chosen values that are evenly spaced in what matters, such as the logarithm of a rate.
        """
        ranks = [pd.factorize(self.settings[name], sort=True)[0] for name in self.settings]
        columns = [places / places.max() for places in ranks if places.max() > 0]
        return np.stack(columns, axis=1) if columns else np.zeros((len(self.values), 1))

    @property
    def digest(self) -> str:
        """Changes when a setting or what it came to does."""
        text = self.settings.assign(value=self.values).to_csv(index=False, lineterminator="\n")
        return hashlib.sha256(f"{self.tuned} {self.measure}\n{text}".encode()).hexdigest()


def space_of(metrics: pd.DataFrame, measure: Measure, looks: Looks | None = None) -> Space | None:
    """The algorithm with the most settings is searched; the first that chooses its rate itself is the reference.

    None where either is missing. A setting that diverged counts as bad as the worst that did not.
    """
    if metrics.empty:
        return None
    table = settings(metrics, int(metrics["epoch"].max()))
    names = settings_among(metrics)
    reference, tuned = _pair(table, names, looks or looks_of(metrics))
    levels = table[table["algorithm"] == reference].groupby("batch_size")[measure].median().sort_index()
    theirs = table[table["algorithm"] == tuned].reset_index(drop=True)
    values = theirs[measure].to_numpy(dtype=float)
    finite = values[np.isfinite(values)]
    levels = levels[np.isfinite(levels)]
    if reference is None or tuned is None or levels.empty or len(finite) == 0:
        return None
    own = [name for name in names if name != "algorithm" and theirs[name].nunique(dropna=False) > 1]
    values = np.where(np.isfinite(values), values, finite.max())  # who tried it has paid for it: as bad as the worst
    return Space(measure, tuned, reference, theirs[own], values, levels)


def _pair(table: pd.DataFrame, columns: Sequence[str], looks: Looks) -> tuple[str | None, str | None]:
    """The reference, and the algorithm that is searched: one that has settings beside the batch size."""
    own = [name for name in columns if name not in {"algorithm", "batch_size"}]
    counts = table.loc[table[own].notna().any(axis=1), "algorithm"].value_counts()
    there = set(table["algorithm"])
    reference = next((name for name in looks if name in there and looks[name].chooses), None)
    searched = [name for name in looks if name in counts and not looks[name].chooses]
    return reference, max(searched, key=lambda name: counts[name], default=None)


class Trainings(NamedTuple):
    """How many trainings searches take until they match a value."""

    median: int
    low: int
    """A tenth of the searches take no more trainings."""
    high: int
    """Nine tenths of the searches take no more trainings."""


@dataclass(frozen=True)
class Found:
    """The best values that searches have found after 1, 2, …, N trainings."""

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
    """The best values of searches that were made one by one."""

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
        """The measure that is compared."""
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
        """The value that the reference reaches, by batch size: the median over its seeds."""
        return self.space.levels

    @property
    def one_run(self) -> float:
        """The value that one run of the reference reaches at an arbitrary batch size: the median over batch sizes."""
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
    """The best values of searches; after the end of a search, the best of all settings."""
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
