"""Where hot swapping wins and where it loses: sentences that follow from the scores.

The page, the report and the documentation say the same, because they all have it from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, searched
from hotswap.bench.plan import reporting_seeds, wanted
from hotswap.bench.report.looks import label, three_digits
from hotswap.bench.runs import Result
from hotswap.bench.scores import Overall, Score, in_hindsight, overall
from hotswap.bench.workloads import WORKLOADS, Size

__all__ = [
    "RIVALS",
    "Contest",
    "Duel",
    "advice",
    "best_first",
    "contests",
    "coverage",
    "duels",
    "each_of_ours",
    "hindsight",
    "is_ours",
    "scored",
    "summary",
    "verdict",
]

RIVALS = ("adamw", "adamw_cosine", "schedule_free", "prodigy")
"""What most people would take instead: sentences name these, and tables all."""

LEVEL = 0.01
"""Where the better score is no more than so much below the other, nobody is said to be ahead."""

NAMED = 4
"""So many methods with too few seeds are named one by one."""

Table = Mapping[str, Mapping[str, Score]]
"""By method, then by workload: its first configuration, where it has a score."""


@dataclass(frozen=True)
class Duel:
    """One of ours against one of the others, on the workloads where both have a score."""

    ours: str
    other: str
    ahead: int
    """On how many the median of ours is the better one."""
    surely: int
    """On how many of these the worst seed of ours is better than the best of the other."""
    of: int


@dataclass(frozen=True)
class Contest:
    """The best of ours and the best of the others on a workload."""

    workload: str
    ours: Score
    other: Score

    @property
    def lead(self) -> float:
        """By what factor ours is ahead; below 1 if it is behind."""
        return self.other.ratio / self.ours.ratio

    @property
    def standing(self) -> int:
        """1 where ours is ahead, -1 where it is behind, 0 where they are level."""
        return (self.lead > 1 + LEVEL) - (self.lead < 1 / (1 + LEVEL))


def is_ours(method: str) -> bool:
    """Whether it is a method of this library."""
    return method in METHODS and METHODS[method].ours


def scored(found: Iterable[Score]) -> list[str]:
    """The workloads that have a reference, and so scores."""
    return sorted({score.workload for score in found if not math.isnan(score.ratio)})


def best_first(found: Sequence[Score]) -> list[Overall]:
    """The methods without tuning that have a score on every such workload: only their means can be compared."""
    count = len(scored(found))
    return [row for row in overall(found) if row.method != REFERENCE and row.workloads == count]


def duels(found: Sequence[Score]) -> list[Duel]:
    """All of ours against all others, each in the order of `METHODS`."""
    table = _table(found)
    ours, others = _sides(table)
    pairs = []
    for one in ours:
        for other in others:
            both = [(table[one][name], table[other][name]) for name in table[one] if name in table[other]]
            ahead = [(a, b) for a, b in both if a.ratio < b.ratio]
            if both:
                pairs.append(Duel(one, other, len(ahead), sum(a.high < b.low for a, b in ahead), len(both)))
    return pairs


def coverage(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """Over how many workloads scores are, which are missing and why, and who was not trained as often as planned."""
    there, begun = scored(found), {result.run.workload for result in results.values()}
    planned = sorted({*WORKLOADS, *begun})
    if not there:
        said = [f"There are no scores yet: none of {len(planned)} workloads has a tuned reference."]
    elif len(there) == len(planned):
        said = [f"Scores are over all {len(planned)} workloads."]
    else:
        said = [f"Scores are over {len(there)} of {len(planned)} workloads: {_listed(map(_code, there))}."]
    waiting = [name for name in planned if name in begun and name not in there]
    never = [name for name in planned if name not in begun]
    if waiting:
        said.append(f"Without a complete search for the reference, so without scores: {_listed(map(_code, waiting))}.")
    if never:
        said.append(f"Not run yet: {_listed(map(_code, never))}.")
    said += _too_few(found)
    if owed := [f"{label(method)} on `{workload}`" for workload, method in _second_tries(results)]:
        said.append(f"Failed, and still to be trained a second time: {_listed(owed)}.")
    partly = [row for row in overall(found) if row.workloads < len(there)]
    said += [
        f"{label(row.method)} has scores on {row.workloads} of {len(there)} workloads, and is left out where means are "
        "compared."
        for row in partly
    ]
    return said


def _too_few(found: Sequence[Score]) -> list[str]:
    """Who has fewer seeds than planned: each of a few, or how many on a workload."""
    few: dict[str, list[Score]] = {}
    for score in found:
        if score.workload in WORKLOADS and score.seeds < len(reporting_seeds(score.workload)):
            few.setdefault(score.workload, []).append(score)
    said = []
    for workload, some in few.items():
        seeds = len(reporting_seeds(workload))
        if len(some) > NAMED:
            least = min(score.seeds for score in some)
            said.append(f"On `{workload}` {len(some)} methods have fewer than {seeds} seeds, at least {least}.")
        else:
            names = ((label(score.method, score.configuration), score.seeds) for score in some)
            said += [f"{name} on `{workload}` has {count} of {seeds} seeds." for name, count in names]
    return said


def _second_tries(results: Mapping[str, Result]) -> list[tuple[str, str]]:
    """Workload and method of second configurations that are due and have no run yet."""
    methods = [name for name in METHODS if any(result.run.method == name for result in results.values())]
    size: Size = next((result.run.size for result in results.values()), "full")
    begun = [name for name in WORKLOADS if any(result.run.workload == name for result in results.values())]
    runs = (run for run in wanted(begun, methods, size, results) if run.configuration == SECOND)
    return list(dict.fromkeys((run.workload, run.method) for run in runs if run.id not in results))


def contests(found: Sequence[Score]) -> list[Contest]:
    """By workload, where ours and others have scores; the greatest lead of ours first."""
    table = _table(found)
    sides = _sides(table)
    pairs = []
    for workload in scored(found):
        best = [
            min((table[name][workload] for name in side if workload in table[name]), key=_ratio, default=None)
            for side in sides
        ]
        if best[0] is not None and best[1] is not None:
            pairs.append(Contest(workload, best[0], best[1]))
    return sorted(pairs, key=lambda contest: -contest.lead)


def summary(found: Sequence[Score]) -> list[str]:
    """Who is best over all workloads, where one of ours is as good as tuned, and the worst of ours."""
    table = _table(found)
    ours, _ = _sides(table)
    if not ours:
        return ["None of ours has a score yet, so that nothing can be said of them."]
    worst = max((score for name in ours for score in table[name].values()), key=_ratio)
    endless = f"; {worst.endless} of its {worst.seeds} runs diverged or raised an error" if worst.endless else ""
    return [
        *_best(best_first(found), scored(found)),
        _against_tuned(table, ours),
        f"The worst of ours is {label(worst.method)} on `{worst.workload}`: {three_digits(worst.ratio)} times the "
        f"reference{endless}.",
    ]


def verdict(found: Sequence[Score]) -> list[str]:
    """The summary, and the workloads on which the best of ours is ahead of the best of the others or behind."""
    return [*summary(found), *_by_workload(found)]


def each_of_ours(found: Sequence[Score]) -> list[str]:
    """A sentence on each: its mean and place, its worst, and on how many workloads it is ahead of what others use."""
    rows = {row.method: row for row in overall(found)}
    places = {row.method: place for place, row in enumerate(best_first(found), start=1)}
    pairs = {(duel.ours, duel.other): duel for duel in duels(found)}
    said = []
    for method in (name for name in METHODS if is_ours(name) and name in rows):
        row = rows[method]
        rank = f", place {places[method]} of {len(places)}" if method in places else ""
        against = [pairs[method, other] for other in RIVALS if (method, other) in pairs]
        ahead = _listed(f"{label(duel.other)} on {duel.ahead} of {duel.of}" for duel in against)
        said.append(
            f"{label(method)}: geometric mean {three_digits(row.mean)} over {_count(row.workloads, 'workload')}{rank}; "
            f"worst {three_digits(row.worst)}, on `{row.where}`; {_count(len(row.misses), 'miss', 'misses')}"
            + (f"; ahead of {ahead}." if ahead else ".")
        )
    return said


def hindsight(results: Mapping[str, Result]) -> list[str]:
    """What one fixed configuration would have had, for who knows it: a sentence, where there is one."""
    if (found := in_hindsight(results)) is None:
        return []
    name, mean, worst = found
    settings = ", ".join(f"{key} {value}" for key, value in searched()[name].settings.items())
    return [
        f"In hindsight: one configuration of the search for references, `{name}` ({settings}, cosine), has a geometric "
        f"mean of {three_digits(mean)} and a worst score of {three_digits(worst)} over all these workloads, from one "
        "seed. Who knew it beforehand would need no other method."
    ]


def advice(found: Sequence[Score]) -> list[str]:
    """When to use which, as far as the measured workloads tell; sentences for a list."""
    table, rows = _table(found), best_first(found)
    ours, others = _sides(table)
    own, peers = ([row for row in rows if row.method in side] for side in (ours, others))
    if not own or not peers:
        return ["What to use when cannot be said before ours and others have scores on the same workloads."]
    count = _count(len(scored(found)), "workload")
    said = [
        f"Of ours, on the {count} of the benchmark: {_champions(own)}.",
        f"Of what others use: {_champions(peers)}.",
        *_by_workload(found),
    ]
    return [*said, _against_tuned(table, ours)]


def _best(rows: Sequence[Overall], there: Sequence[str]) -> list[str]:
    if not rows:
        return []
    said = [
        f"Over {_count(len(there), 'workload')}, of {_count(len(rows), 'method')} without tuning: {_champions(rows)}."
    ]
    own = [row for row in rows if is_ours(row.method)]
    if own and len(own) < len(rows) and _champions(own) != _champions(rows):
        said.append(f"Of ours: {_champions(own)}.")
    return said


def _champions(rows: Sequence[Overall]) -> str:
    """The best by mean, and by what happens where it goes worst."""
    first, safest = rows[0], min(rows, key=lambda row: row.worst)
    mean = f"{label(first.method)} has the lowest geometric mean of scores, {three_digits(first.mean)}"
    if first == safest:
        return f"{mean}, and the lowest worst score, {three_digits(first.worst)} (on `{first.where}`)"
    return (
        f"{mean} (worst {three_digits(first.worst)}, on `{first.where}`), and {label(safest.method)} the lowest worst "
        f"score, {three_digits(safest.worst)} (on `{safest.where}`)"
    )


def _by_workload(found: Sequence[Score]) -> list[str]:
    pairs = contests(found)
    if not pairs:
        return []
    wins = [f"`{one.workload}` ({_short(one.ours)}, {_short(one.other)})" for one in pairs if one.standing > 0]
    losses = [f"`{one.workload}` ({_short(one.other)}, {_short(one.ours)})" for one in pairs if one.standing < 0]
    level = [f"`{one.workload}` ({_short(one.ours)}, {_short(one.other)})" for one in pairs if one.standing == 0]
    count = _count(len(pairs), "workload")
    said = [
        f"The best of ours is ahead of the best of the others on {len(wins)} of {count}{_after(wins)}.",
        f"It is behind on {len(losses)} of {count}{_after(losses)}.",
    ]
    return said + ([f"They are level, within {LEVEL:.0%}, on {len(level)}{_after(level)}."] if level else [])


def _against_tuned(table: Table, ours: Sequence[str]) -> str:
    """Where one of ours is as good as tuning, which costs many trainings."""
    there = sorted({name for one in ours for name in table[one]})
    near = 1 + LEVEL
    reached = [name for name in there if any(name in table[one] and table[one][name].ratio <= near for one in ours)]
    where = f"{len(reached)} of {_count(len(there), 'workload')}{_after([_code(name) for name in reached])}"
    return f"One of ours is as good as the tuned reference, within {LEVEL:.0%}, or better on {where}."


def _table(found: Iterable[Score]) -> Table:
    table: dict[str, dict[str, Score]] = {}
    for score in found:
        if score.configuration == FIRST and score.method != REFERENCE and not math.isnan(score.ratio):
            table.setdefault(score.method, {})[score.workload] = score
    return table


def _sides(table: Table) -> tuple[list[str], list[str]]:
    """Ours and the others, in the order of `METHODS`; names that are not there any more come last."""
    order = [*(name for name in METHODS if name in table), *(name for name in table if name not in METHODS)]
    return [name for name in order if is_ours(name)], [name for name in order if not is_ours(name)]


def _ratio(score: Score) -> float:
    return score.ratio


def _short(score: Score) -> str:
    return f"{label(score.method)} {three_digits(score.ratio)}"


def _code(name: str) -> str:
    return f"`{name}`"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _after(texts: Sequence[str]) -> str:
    return f": {', '.join(texts)}" if texts else ""


def _listed(texts: Iterable[str]) -> str:
    *rest, last = [*texts] or [""]
    return f"{', '.join(rest)} and {last}" if rest else last
