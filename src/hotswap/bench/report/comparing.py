"""Ours against the others: by workload, in pairs, and how firm a lead in the means is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotswap.bench.methods import FIRST, METHODS
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.report.methods import is_ours
from hotswap.bench.runs import Result
from hotswap.bench.scores import Overall, Score, by_method, ends, geometric_mean, overall, reported, untrained

__all__ = [
    "FEW",
    "LEVEL",
    "SURE",
    "Contest",
    "Doubt",
    "Duel",
    "Lead",
    "Pair",
    "Table",
    "best_first",
    "contests",
    "duels",
    "leads",
    "scored",
    "sides",
    "standing",
    "table_of",
]

LEVEL = 0.01
"""Two scores are level if the greater is above the smaller by no more than this share."""

FAR = 1000.0
"""As far ahead as anybody is said to be: of a score of 0, everybody is infinitely far behind."""

FEW = 3
"""A report says so if a method has fewer seeds."""

DRAWS, SURE = 10_000, 0.95
"""How often seeds are drawn again, and the share of draws that an interval holds."""

Table = Mapping[str, Mapping[str, Score]]
"""By method, then by workload: its first configuration, where it has a score."""


def standing(ours: float, other: float) -> int:
    """1 where the first score is ahead, -1 where it is behind, 0 where they are level."""
    return (other > (1 + LEVEL) * ours) - (ours > (1 + LEVEL) * other)


@dataclass(frozen=True)
class Pair:
    """Two methods on the workloads where both have a score, by name."""

    scores: Mapping[str, tuple[Score, Score]]

    @classmethod
    def of(cls, table: Table, one: str, other: str) -> Pair:
        """These two; there may be no workload for both."""
        first, second = table.get(one, {}), table.get(other, {})
        return cls({name: (first[name], second[name]) for name in first if name in second})

    @property
    def standings(self) -> list[int]:
        """See `standing`, by workload."""
        return [standing(one.ratio, other.ratio) for one, other in self.scores.values()]

    def standings_at(self, percent: int) -> list[int]:
        """The same after so much of the budget."""
        return [standing(one.early[percent], other.early[percent]) for one, other in self.scores.values()]

    @property
    def decisive(self) -> str:
        """The workload on which the first gains most on the second; empty where there are not two."""
        logs = {name: _log(one) - _log(other) for name, (one, other) in self.scores.items()}
        return min(logs, key=lambda name: logs[name]) if len(logs) > 1 else ""

    def means(self, without: str = "") -> tuple[float, float]:
        """The geometric means of both, perhaps without a workload."""
        kept = [both for name, both in self.scores.items() if name != without]
        one, other = (geometric_mean(score.ratio for score in side) for side in zip(*kept, strict=True))
        return one, other


@dataclass(frozen=True)
class Duel:
    """A comparison of one of our methods with one of the others, on the workloads where both have a score."""

    ours: str
    other: str
    ahead: int
    """The number of workloads on which the median of ours is ahead."""
    level: int
    """The number of workloads on which both are level. On all further workloads, ours is behind."""
    surely: int
    """On how many of those where it is ahead the worst seed of ours is better than the best of the other."""
    of: int


class Doubt(StrEnum):
    """A reason not to be sure which of two scores is better."""

    NONE = ""
    FEW = "few seeds"
    OVERLAP = "seeds overlap"


@dataclass(frozen=True)
class Contest:
    """The best of ours and the best of the others on a workload."""

    workload: str
    ours: Score
    other: Score

    @property
    def lead(self) -> float:
        """By what factor ours is ahead, at most `FAR`; below 1 if it is behind."""
        return min(FAR, self.other.ratio / self.ours.ratio) if self.ours.ratio else FAR

    @property
    def standing(self) -> int:
        """1 where ours is ahead, -1 where it is behind, 0 where they are level."""
        return standing(self.ours.ratio, self.other.ratio)

    @property
    def doubt(self) -> Doubt:
        """The reason not to be sure who is ahead; none where nobody is."""
        if not self.standing:
            return Doubt.NONE
        if min(self.ours.seeds, self.other.seeds) < FEW:
            return Doubt.FEW
        overlap = self.ours.low <= self.other.high and self.other.low <= self.ours.high
        return Doubt.OVERLAP if overlap else Doubt.NONE


@dataclass(frozen=True)
class Lead:
    """How the geometric means of two methods compare, and how much that depends on seeds and on single workloads."""

    ours: str
    other: str
    ratio: float
    """The mean of ours over that of the other: ours is ahead below 1."""
    low: float
    high: float
    """An interval that holds the ratio of most draws of as many seeds, with replacement, on every workload."""
    without: str
    """The workload without which the ratio is greatest, so the lead smallest."""
    then: float
    """The ratio without it."""
    few: tuple[str, ...]
    """Workloads on which one of both has few seeds."""


def scored(found: Iterable[Score]) -> list[str]:
    """The workloads that have a reference, and so scores."""
    return sorted({score.workload for score in found if not math.isnan(score.ratio)})


def best_first(found: Sequence[Score]) -> list[Overall]:
    """The methods without tuning that have a score on every such workload: only their means can be compared."""
    count = len(scored(found))
    return [row for row in overall(found) if row.method != REFERENCE and row.workloads == count]


def table_of(found: Iterable[Score]) -> Table:
    """The scores of methods without tuning."""
    return {method: own for method, own in by_method(found).items() if method != REFERENCE}


def sides(table: Table) -> tuple[list[str], list[str]]:
    """Ours and the others, in the order of `METHODS`; names that are not there any more come last."""
    order = [*(name for name in METHODS if name in table), *(name for name in table if name not in METHODS)]
    return [name for name in order if is_ours(name)], [name for name in order if not is_ours(name)]


def duels(found: Sequence[Score]) -> list[Duel]:
    """All of ours against all others, each in the order of `METHODS`."""
    table = table_of(found)
    ours, others = sides(table)
    pairs = []
    for one in ours:
        for other in others:
            pair = Pair.of(table, one, other)
            stands = pair.standings
            surely = sum(at > 0 and a.high < b.low for at, (a, b) in zip(stands, pair.scores.values(), strict=True))
            if stands:
                pairs.append(Duel(one, other, stands.count(1), stands.count(0), surely, len(stands)))
    return pairs


def contests(found: Sequence[Score]) -> list[Contest]:
    """By workload, where ours and others have scores; the greatest lead of ours first."""
    table = table_of(found)
    both = sides(table)
    pairs = []
    for workload in scored(found):
        ours, other = (
            min((table[name][workload] for name in side if workload in table[name]), key=_ratio, default=None)
            for side in both
        )
        if ours is not None and other is not None:
            pairs.append(Contest(workload, ours, other))
    return sorted(pairs, key=lambda contest: -contest.lead)


def leads(results: Mapping[str, Result], found: Sequence[Score]) -> list[Lead]:
    """Ours with a score everywhere, by their means, against the best of the others; none where a measure is 0."""
    rows, table = best_first(found), table_of(found)
    best = next((row for row in rows if not is_ours(row.method)), None)
    if best is None:
        return []
    runs = reported(results)
    starts = untrained(runs)

    def measures(method: str) -> list[Sequence[float]]:
        return [ends(runs[workload, method, FIRST], starts[workload]) for workload in scored(found)]

    chosen = []
    for method in (row.method for row in rows if is_ours(row.method)):
        both = [measures(one) for one in (method, best.method)]
        if all(end > 0 for side in both for seeds in side for end in seeds):  # of 0, there is no ratio
            chosen.append(_lead(method, best.method, Pair.of(table, method, best.method), _interval(both)))
    return chosen


def _lead(ours: str, other: str, pair: Pair, interval: tuple[float, float]) -> Lead:
    (mean, others), without = pair.means(), pair.decisive
    then = pair.means(without) if without else (math.nan, math.nan)
    few = tuple(name for name, both in sorted(pair.scores.items()) if min(score.seeds for score in both) < FEW)
    return Lead(ours, other, mean / others, *interval, without, then[0] / then[1], few)


def _interval(both: Sequence[Sequence[Sequence[float]]]) -> tuple[float, float]:
    """An interval for the ratio of two methods' geometric means.

    `both` holds the measures of each method at the end, by workload and seed. The reference cancels out.
    """
    numbers = np.random.default_rng(0)
    drawn = [sum(_drawn_again(seeds, numbers) for seeds in side) for side in both]
    edges = np.quantile((drawn[0] - drawn[1]) / len(both[0]), [(1 - SURE) / 2, (1 + SURE) / 2])
    low, high = np.exp(edges).tolist()
    return low, high


def _drawn_again(seeds: Sequence[float], numbers: np.random.Generator) -> NDArray[Any]:
    """The logarithms of medians of so many seeds, drawn with replacement, again and again."""
    draws = numbers.choice(np.asarray(seeds), (DRAWS, len(seeds)))
    return np.asarray(np.log(np.median(draws, axis=1)))


def _ratio(score: Score) -> float:
    return score.ratio


def _log(score: Score) -> float:
    return math.log(score.ratio) if score.ratio else -math.inf
