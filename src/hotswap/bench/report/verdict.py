"""Where hot swapping wins and where it loses: sentences that follow from the scores.

The page, the report and the documentation say the same, because they all have it from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hotswap.bench.methods import METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, searched
from hotswap.bench.plan import chosen, reporting_seeds, search_of, wanted
from hotswap.bench.report.comparing import (
    FEW,
    LEVEL,
    SURE,
    Contest,
    Lead,
    Pair,
    Table,
    best_first,
    contests,
    duels,
    is_ours,
    leads,
    scored,
    sides,
    standing,
    table_of,
)
from hotswap.bench.report.configured import settings_text
from hotswap.bench.report.looks import label, three_digits
from hotswap.bench.runs import SETTLED, Result
from hotswap.bench.scores import EARLY, Overall, Score, in_hindsight, overall, reported, too_easy
from hotswap.bench.workloads import WORKLOADS, Size
from hotswap.names import one_line

__all__ = [
    "RIVALS",
    "advice",
    "after_second_tries",
    "cautions",
    "coverage",
    "doubts",
    "each_of_ours",
    "early_on",
    "firmness",
    "hindsight",
    "summary",
    "verdict",
]

RIVALS = ("adamw", "adamw_cosine", "schedule_free", "prodigy")
"""What most people would take instead: sentences name these, and tables all."""

NAMED = 4
"""So many methods with too few seeds are named one by one."""


def coverage(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """Over how many workloads scores are, which are missing and why, and who was not trained as often as planned."""
    there, begun = scored(found), {result.run.workload for result in results.values()}
    planned = sorted({*WORKLOADS, *begun})
    if not there:
        said = ["There are no scores yet."]
    elif len(there) == len(planned):
        said = [f"Scores are over all {len(planned)} workloads."]
    else:
        listed = f": {_listed(map(_code, there))}" if 2 * len(there) < len(planned) else ""
        said = [f"Scores are over {len(there)} of {len(planned)} workloads{listed}."]
    waiting = [name for name in planned if name in begun and name not in there]
    never = [name for name in planned if name not in begun]
    said += [f"`{name}` has no scores yet: {_why_not(name, results)}." for name in waiting]
    if never:
        said.append(f"Not run yet: {_listed(map(_code, never))}.")
    said += _too_few(found)
    if owed := [f"{label(method)} on `{workload}`" for workload, method in _second_tries(results)]:
        said.append(f"Second tries that are due and have not been run yet: {_listed(owed)}.")
    partly: dict[int, list[str]] = {}
    for row in overall(found):
        if row.workloads < len(there):
            partly.setdefault(row.workloads, []).append(label(row.method))
    for count, names in partly.items():
        verbs = ("have", "are") if len(names) > 1 else ("has", "is")
        some = f"{count} of {len(there)} workloads only, and {verbs[1]} left out where means are compared"
        said.append(f"{_listed(names)} {verbs[0]} scores on {some}.")
    return said + _without_a_run(results)


def cautions(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """What a reader must know before anything else."""
    said = []
    if any(result.run.size == "smoke" for result in results.values()):
        said.append("These runs are of size smoke: a look at how it works, whose numbers mean nothing.")
    said += [
        f"`{name}` is too easy: AdamW's default reaches its reference within a tenth of the budget. It tells little, "
        "and is to be replaced."
        for name in too_easy(found)
    ]
    return said


def _why_not(workload: str, results: Mapping[str, Result]) -> str:
    """What keeps a workload from having scores."""
    of_it = [result.run.method for result in results.values() if result.run.workload == workload]
    if REFERENCE not in of_it:
        return f"its reference is not there, which `hotswap bench run --method {REFERENCE}` searches for"
    if search_of(workload, results) is None:
        return "the search for its reference is not complete"
    if chosen(workload, results) is None:
        return "every run of the search for its reference diverged or raised an error"
    runs = reported(results).get((workload, REFERENCE, str(chosen(workload, results))), [])
    if any(run.end is not None for run in runs):
        return "its reference makes no error at all, so that nothing can be compared with it"
    return "no run of its reference has finished"


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
            fewer = f"{len(some)} configurations have fewer than {seeds} seeds"
            said.append(f"On `{workload}` {fewer}; the fewest is {least}.")
        else:
            names = ((label(score.method, score.configuration), score.seeds) for score in some)
            said += [f"{name} on `{workload}` has {count} of {seeds} seeds." for name, count in names]
    return said


def _without_a_run(results: Mapping[str, Result]) -> list[str]:
    """The methods of which no run has ended, such as those whose package is not there, and why."""
    by_method: dict[str, list[Result]] = {}
    for result in results.values():
        by_method.setdefault(result.run.method, []).append(result)
    reasons = {
        method: next((result.reason for result in some if result.reason), "")
        for method, some in by_method.items()
        if all(result.state not in SETTLED for result in some)
    }
    words = {method: one_line(why).replace("`", "'") for method, why in reasons.items()}  # not to be taken for code
    return [f"{label(method)} has no run that has ended. {why}".strip() for method, why in sorted(words.items())]


def _second_tries(results: Mapping[str, Result]) -> list[tuple[str, str]]:
    """Workload and method of second configurations that are due and have no run yet."""
    methods = [name for name in METHODS if any(result.run.method == name for result in results.values())]
    size: Size = next((result.run.size for result in results.values()), "full")
    begun = [name for name in WORKLOADS if any(result.run.workload == name for result in results.values())]
    runs = (run for run in wanted(begun, methods, size, results) if run.configuration == SECOND)
    return list(dict.fromkeys((run.workload, run.method) for run in runs if run.id not in results))


def summary(found: Sequence[Score]) -> list[str]:
    """Who is best over all workloads, where ours and others are as good as tuned, and the worst of ours."""
    table = table_of(found)
    ours, others = sides(table)
    if not ours:
        return ["None of ours has a score yet, so that nothing can be said of them."]
    worst = max((score for name in ours for score in table[name].values()), key=lambda score: score.ratio)
    unfinished = (
        f"; {worst.unfinished} of its {worst.seeds} runs diverged or raised an error" if worst.unfinished else ""
    )
    return [
        *_best(best_first(found), scored(found)),
        *_against_tuned(table, ours, others),
        f"The worst of ours is {label(worst.method)} on `{worst.workload}`: {three_digits(worst.ratio)} times the "
        f"reference{unfinished}.",
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
        ahead = _listed(
            f"{label(duel.other)} on {duel.ahead} of {duel.of}" + (f" ({duel.level} level)" if duel.level else "")
            for duel in against
        )
        said.append(
            f"{label(method)}: geometric mean {three_digits(row.mean)} over {_count(row.workloads, 'workload')}{rank}; "
            f"worst {three_digits(row.worst)}, on `{row.where}`; {_count(len(row.misses), 'miss', 'misses')}"
            + (f"; ahead of {ahead}." if ahead else ".")
        )
    return said


def doubts(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """What to hold against the means: earlier moments, other seeds, single workloads, what is known in hindsight."""
    return [*early_on(found), *firmness(results, found), *hindsight(results)]


def early_on(found: Sequence[Score]) -> list[str]:
    """How the best of ours and of the others by mean compare before the end: a sentence, where there are both."""
    rows = best_first(found)
    ours, other = (next((row for row in rows if is_ours(row.method) == own), None) for own in (True, False))
    if ours is None or other is None:
        return []
    pair, parts = Pair.of(table_of(found), ours.method, other.method), []
    for percent in EARLY:
        means = " and ".join(three_digits(row.early[percent]) for row in (ours, other))
        parts.append(f"{means} after {percent}% of the budget ({_counted(pair.standings_at(percent))})")
    return [f"Earlier, the means of {label(ours.method)} and of {label(other.method)} are {_listed(parts)}."]


def _counted(stands: Sequence[int]) -> str:
    """On how many workloads it is ahead, behind and level; what is nowhere so is left out."""
    words = {1: "ahead", -1: "behind", 0: "level"}
    return ", ".join(f"{word} on {stands.count(at)}" for at, word in words.items() if at in stands)


def firmness(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """How much the leads in the means depend on seeds, on single workloads and on second tries."""
    return [*(_firmness(lead) for lead in leads(results, found)), *after_second_tries(found)]


def after_second_tries(found: Sequence[Score]) -> list[str]:
    """How ours that lead stand if second tries count: a sentence, where another method's mean falls by its own."""
    rows = best_first(found)
    others = [row for row in rows if not is_ours(row.method)]
    if not others:
        return []
    first, best = min(others, key=lambda row: row.mean), min(others, key=lambda row: row.second)
    leading = [row for row in rows if is_ours(row.method) and row.mean < first.mean]
    if not leading or best.second == best.mean:
        return []
    words = {1: "is still ahead", 0: f"is level, within {LEVEL:.0%}", -1: "is behind"}
    stands = (
        f"{label(row.method)}, at {three_digits(row.second)}, {words[standing(row.second, best.second)]}"
        for row in leading
    )
    return [
        f"If second tries count, {label(best.method)} has a mean of {three_digits(best.second)}: {'; '.join(stands)}."
    ]


def _firmness(lead: Lead) -> str:
    said = f"The mean of {label(lead.ours)} is {three_digits(lead.ratio)} times that of {label(lead.other)}"
    if lead.low < lead.high:
        unsure = ", which includes 1" if lead.low <= 1 <= lead.high else ""
        interval = f"{three_digits(lead.low)} to {three_digits(lead.high)}"
        said += f" (bootstrap over seeds: {SURE:.0%} interval {interval}{unsure})"
    if lead.few:
        said += f"; fewer than {FEW} seeds on {_listed(map(_code, lead.few))}"
    if not lead.without:
        return f"{said}."
    words = {1: "still ahead", 0: "level", -1: "behind"}[standing(lead.then, 1.0)]
    return f"{said}. Without `{lead.without}`, where it gains most, it is {three_digits(lead.then)}: {words}."


def hindsight(results: Mapping[str, Result]) -> list[str]:
    """What one fixed configuration would have had, for who knows it: a sentence, where there is one."""
    if (found := in_hindsight(results)) is None:
        return []
    name, mean, worst = found
    settings = settings_text(searched()[name].settings)
    return [
        f"In hindsight: one configuration of the search for references, `{name}` ({settings}, cosine), has a geometric "
        f"mean of {three_digits(mean)} and a worst score of {three_digits(worst)} over these workloads, from one seed."
    ]


def advice(found: Sequence[Score]) -> list[str]:
    """When to use which, as far as the measured workloads tell; sentences for a list."""
    table, rows = table_of(found), best_first(found)
    ours, others = sides(table)
    own, peers = ([row for row in rows if row.method in side] for side in (ours, others))
    if not own or not peers:
        return ["What to use when cannot be said before ours and others have scores on the same workloads."]
    count = _count(len(scored(found)), "workload")
    said = [
        f"Of ours, on the {count} of the benchmark: {_champions(own)}.",
        f"Of the other methods: {_champions(peers)}.",
        *_by_workload(found),
    ]
    return [*said, *_against_tuned(table, ours, others)]


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
    wins, level, losses = ([_scores_of(one) for one in pairs if one.standing == at] for at in (1, 0, -1))
    count = _count(len(pairs), "workload")
    said = [
        f"The best of ours is ahead of the best of the others on {len(wins)} of {count}{_after(wins)}.",
        f"It is behind on {len(losses)} of {count}{_after(losses)}.",
    ]
    return said + ([f"They are level, within {LEVEL:.0%}, on {len(level)}{_after(level)}."] if level else [])


def _scores_of(one: Contest) -> str:
    """Both scores, the better side first, and why one should not be too sure, if so."""
    first, second = (one.other, one.ours) if one.standing < 0 else (one.ours, one.other)
    return f"`{one.workload}` ({_short(first)}, {_short(second)}{'; ' if one.doubt else ''}{one.doubt})"


def _against_tuned(table: Table, ours: Sequence[str], others: Sequence[str]) -> list[str]:
    """Where one of ours is as good as tuning, which costs many trainings, and where one of the others is."""
    as_good = f"is as good as the tuned reference, within {LEVEL:.0%}, or better"
    said = []
    for who, side in (("ours", ours), ("the others", others)):
        scored = [score for one in side for score in table[one].values()]
        reached: dict[str, int] = {}  # by workload, the most seeds that show it
        for score in scored:
            if score.ratio <= 1 + LEVEL:
                reached[score.workload] = max(score.seeds, reached.get(score.workload, 0))
        names = [
            _code(name) + (f" (from {_count(seeds, 'seed')})" if seeds < FEW else "")
            for name, seeds in sorted(reached.items())
        ]
        if scored:
            where = f"{len(names)} of {_count(len({score.workload for score in scored}), 'workload')}"
            said.append(f"On {where} at least one of {who} {as_good}{_after(names)}.")
    return said


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
