"""The scores of methods: how each compares with the tuned reference, by workload and over all workloads.

Pure functions of results, by the rules of `docs/benchmark.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from hotswap.bench.methods import FIRST, SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.plan import CHOOSING, chosen
from hotswap.bench.runs import PERCENTS, SETTLED, Result, Run

__all__ = [
    "EARLY",
    "Band",
    "Key",
    "Overall",
    "Score",
    "by_method",
    "curve",
    "ends",
    "geometric_mean",
    "in_hindsight",
    "overall",
    "profile",
    "reported",
    "scores",
    "too_easy",
    "untrained",
]

EARLY = (10, 30)
"""Percent of the budget at which there is a score, too."""

NEAR = 1.1
"""A method misses a workload if its median never comes so near to the reference."""

EASY, EASY_METHOD = 0.1, "adamw"
"""A workload is too easy if this method reaches the reference within this share of the budget."""


@dataclass(frozen=True)
class Score:
    """One configuration of a method on one workload; numbers are medians over seeds."""

    workload: str
    method: str
    configuration: str
    seeds: int
    """How many runs have ended, one way or another."""
    unfinished: int
    """How many of them diverged or failed. They count as networks that have learned nothing."""
    median: float
    low: float
    high: float
    """The validation measure at the end, and the least and the greatest."""
    seconds: float
    """The duration of training."""
    ratio: float = math.nan
    """The score: the measure at the end over the reference's; NaN where there is no reference."""
    early: Mapping[int, float] = field(default_factory=dict)
    """The same after some percent of the budget."""
    time: float = math.nan
    """The share of the budget after which it is as good as the reference at its end; infinite if never."""
    nearest: float = math.nan
    """The least that the measure has ever been over the reference's at its end."""
    spoiled: int = 0
    """How many ended with a worse network than they began with. They, too, count as if nothing had been learned."""

    @property
    def marked(self) -> bool:
        """Whether some runs of the configuration count as networks that have learned nothing."""
        return bool(self.unfinished or self.spoiled)

    @property
    def missed(self) -> bool:
        """Whether the configuration never came near the reference."""
        return self.nearest > NEAR


Band = tuple[float, float, float]
"""A median, and the least and the greatest."""

Key = tuple[str, str, str]
"""Workload, method and configuration."""


def reported(results: Mapping[str, Result]) -> dict[Key, list[Result]]:
    """The runs that have ended, from the seeds that are reported, by workload, method and configuration.

    Of the reference, those of the configuration that was chosen.
    """
    found: dict[Key, list[Result]] = {}
    best = {workload: chosen(workload, results) for workload in {r.run.workload for r in results.values()}}
    for result in sorted(results.values(), key=lambda one: one.run):
        run = result.run
        counts = run.configuration == best[run.workload] if run.method == REFERENCE else True
        if counts and run.seed != CHOOSING and result.state in SETTLED:
            found.setdefault((run.workload, run.method, run.configuration), []).append(result)
    return found


def untrained(runs: Mapping[Key, Sequence[Result]]) -> dict[str, float]:
    """By workload, the validation measure of networks before their first step."""
    starts: dict[str, list[float]] = {}
    for (workload, *_), some in runs.items():
        starts.setdefault(workload, []).extend(run.points[0].validation for run in some if _begun(run))
    return {workload: median(values) for workload, values in starts.items() if values}


def curve(runs: Sequence[Result], start: float = math.nan) -> dict[int, Band]:
    """The validation measure of several seeds, by percent of the budget.

    start: that of networks before their first step, for runs of which nothing is known.
    """
    by_percent = {percent: [_value(run, percent, start) for run in runs] for percent in PERCENTS}
    return {percent: (median(values), min(values), max(values)) for percent, values in by_percent.items()}


def ends(runs: Sequence[Result], start: float = math.nan) -> list[float]:
    """The validation measure of several seeds at the end. `start` as for `curve`."""
    return [_value(run, PERCENTS[-1], start) for run in runs]


def scores(results: Mapping[str, Result]) -> list[Score]:
    """Every configuration of every method on every workload where it has ended."""
    found = reported(results)
    start = untrained(found)
    levels = {
        workload: curve(runs, start.get(workload, math.nan))[100][0]
        for (workload, method, _), runs in found.items()
        if method == REFERENCE and any(run.end is not None for run in runs)
    }
    return [_score(key, runs, start.get(key[0], math.nan), levels.get(key[0], math.nan)) for key, runs in found.items()]


def _score(key: Key, runs: Sequence[Result], start: float, level: float) -> Score:
    bands = curve(runs, start)
    middle, low, high = bands[100]
    return Score(
        *key,
        seeds=len(runs),
        unfinished=sum(run.end is None for run in runs),
        median=middle,
        low=low,
        high=high,
        seconds=median(run.points[-1].seconds if run.points else 0.0 for run in runs),
        ratio=_over(middle, level),
        early={percent: _over(bands[percent][0], level) for percent in EARLY},
        time=math.nan if math.isnan(level) else median(_time(run, level) for run in runs),
        nearest=_over(min(band[0] for band in bands.values()), level),
        spoiled=sum(_spoiled(run) for run in runs),
    )


def _over(measure: float, level: float) -> float:
    """A score; NaN where the reference makes no error at all, so that nothing can be compared with it."""
    return measure / level if level else math.nan


def _spoiled(run: Result) -> bool:
    """Whether a run ended with a worse network than it began with."""
    return run.end is not None and _begun(run) and run.end.validation > run.points[0].validation


def _begun(run: Result) -> bool:
    return bool(run.points) and run.points[0].finite


def _value(run: Result, percent: int, start: float) -> float:
    """The measure at a moment; where there is none or a worse one, that of the network before its first step."""
    first = run.points[0].validation if _begun(run) else start
    point = run.at(percent)
    if point is None or (percent == PERCENTS[-1] and run.end is None):
        return first
    return point.validation if math.isnan(first) else min(point.validation, first)


def _time(run: Result, level: float) -> float:
    """When a run is first as good as a level, as a share of the budget."""
    reached = (point.cost / run.budget for point in run.points if point.finite and point.validation <= level)
    return next(reached, math.inf)


@dataclass(frozen=True)
class Overall:
    """A method over all workloads, in its first configuration."""

    method: str
    workloads: int
    """How many it has a score on."""
    mean: float
    """The geometric mean of its scores."""
    second: float
    """The same, if its second configuration counts where that is the better one."""
    worst: float
    where: str
    """Its greatest score, and the workload of that."""
    misses: tuple[str, ...]
    """Workloads on which it never came near the reference."""
    failures: tuple[str, ...]
    """Workloads on which a run of it diverged or raised an error."""
    early: Mapping[int, float]
    """The geometric mean after some percent of the budget."""


def geometric_mean(ratios: Iterable[float]) -> float:
    """The geometric mean of scores: 0 if one of them is 0, since no error is infinitely better than any."""
    logs = [math.log(ratio) if ratio else -math.inf for ratio in ratios]
    return math.exp(fmean(logs))


def by_method(found: Iterable[Score]) -> dict[str, dict[str, Score]]:
    """By method, then by workload: its first configuration, where it has a score."""
    table: dict[str, dict[str, Score]] = {}
    for score in found:
        if (score.configuration == FIRST or score.method == REFERENCE) and not math.isnan(score.ratio):
            table.setdefault(score.method, {})[score.workload] = score
    return table


def overall(found: Iterable[Score]) -> list[Overall]:
    """The methods, the best mean first; those that are on more workloads before others."""
    found = list(found)
    again = {(score.method, score.workload): score.ratio for score in found if score.configuration == SECOND}
    rows = []
    for method, own in ((method, list(scores.values())) for method, scores in by_method(found).items()):
        better = [min(score.ratio, again.get((method, score.workload), math.inf)) for score in own]
        worst = max(own, key=lambda score: score.ratio)
        rows.append(
            Overall(
                method,
                len(own),
                geometric_mean(score.ratio for score in own),
                geometric_mean(better),
                worst.ratio,
                worst.workload,
                tuple(score.workload for score in own if score.missed),
                tuple(score.workload for score in own if score.unfinished),
                {percent: geometric_mean(score.early[percent] for score in own) for percent in EARLY},
            )
        )
    return sorted(rows, key=lambda row: (-row.workloads, row.mean))


def in_hindsight(results: Mapping[str, Result]) -> tuple[str, float, float] | None:
    """The configuration of the search for references that is best over all workloads; its mean, and its worst score.

    Its measures are those of the search, which has one seed; as for all methods, they are taken over the measure of the
    reference from the seeds that are reported. None while there are no two workloads with a reference, or if every
    configuration failed somewhere.
    """
    levels = {s.workload: s.median for s in scores(results) if s.method == REFERENCE and not math.isnan(s.ratio)}
    found: dict[str, list[float]] = {}
    for workload, level in levels.items():
        for one in SEARCHED:
            end = results[Run(workload, REFERENCE, one, CHOOSING).id].end
            if end is not None:
                found.setdefault(one, []).append(end.validation / level)
    everywhere = {one: ratios for one, ratios in found.items() if len(ratios) == len(levels) > 1}
    if not everywhere:
        return None
    first = min(everywhere, key=lambda one: geometric_mean(everywhere[one]))
    return first, geometric_mean(everywhere[first]), max(everywhere[first])


def profile(found: Iterable[Score], levels: Sequence[float]) -> dict[str, list[float]]:
    """By method, the share of all workloads on which its score is at most each of these levels.

    Only of methods that have a score on all of them: others would be judged by what was not measured.
    """
    table = by_method(found)
    count = len({workload for own in table.values() for workload in own})
    return {
        method: [sum(score.ratio <= level for score in own.values()) / count for level in levels]
        for method, own in table.items()
        if len(own) == count
    }


def too_easy(found: Iterable[Score]) -> list[str]:
    """Workloads that tell little, because nobody needs tuning there."""
    return [
        score.workload
        for score in found
        if score.method == EASY_METHOD and score.configuration == FIRST and score.time <= EASY
    ]
