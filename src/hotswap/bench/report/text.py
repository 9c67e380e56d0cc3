"""The report in tables: which scores are missing, ours against the others, every method and every workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, searched
from hotswap.bench.plan import CHOOSING, chosen, chosen_settings, reporting_seeds, search_of, wanted
from hotswap.bench.report.comparing import (
    FEW,
    LEVEL,
    SURE,
    Contest,
    Doubt,
    Lead,
    Pair,
    best_first,
    contests,
    duels,
    leads,
    scored,
    sides,
    table_of,
)
from hotswap.bench.report.methods import (
    configuration_grid,
    is_ours,
    label,
    origins,
    settings_text,
    three_digits,
    title_of,
)
from hotswap.bench.runs import SETTLED, Result, troubles
from hotswap.bench.scores import EARLY, Overall, Score, in_hindsight, overall, reported, scores, too_easy
from hotswap.bench.workloads import WORKLOADS, Size
from hotswap.names import one_line
from hotswap.report.answer import Answer, Case, Group, Sign
from hotswap.report.tables import Grid, escaped, markdown, quoted

__all__ = [
    "Gap",
    "Lack",
    "cautions",
    "contest_answer",
    "coverage",
    "duel_grid",
    "gaps",
    "hindsight",
    "lead_grid",
    "record_grid",
    "report_text",
    "score_grid",
    "standing_grid",
    "workload_grid",
]


class Lack(StrEnum):
    """The reasons why scores or runs are missing, each with its sentence."""

    NO_REFERENCE = (
        "`{name}` has no scores yet: its reference is not there, which `hotswap bench run --method "
        f"{REFERENCE}` searches for."
    )
    SEARCHING = "`{name}` has no scores yet: the search for its reference is not complete."
    SEARCH_FAILED = "`{name}` has no scores yet: every run of the search for its reference diverged or raised an error."
    NO_ERROR = "`{name}` has no scores because its reference makes no error at all: nothing can be compared with it."
    UNFINISHED = "`{name}` has no scores yet: no run of its reference has finished."
    NOT_RUN = "`{name}` has not been run yet."
    SEEDS = "On `{name}` there are configurations with fewer than {of} seeds, {count} of them; the fewest is {least}."
    SECOND_TRY = "A second try of {method} on `{name}` is due and has not been run yet."
    PARTLY = "{method} has scores on {count} of {of} workloads only, and is left out where means are compared."
    NO_RUN = "{method} has no run that has ended. {why}"


@dataclass(frozen=True)
class Gap:
    """Something that is missing, and of what."""

    lack: Lack
    values: Mapping[str, object]

    def __str__(self) -> str:
        return self.lack.format(**self.values).strip()


def coverage(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """Over how many workloads scores are, and what is missing, a sentence each."""
    planned = {*WORKLOADS, *(result.run.workload for result in results.values())}
    return [f"Scores are over {len(scored(found))} of {len(planned)} workloads.", *map(str, gaps(results, found))]


def gaps(results: Mapping[str, Result], found: Sequence[Score]) -> list[Gap]:
    """Workloads without scores, methods with fewer seeds or workloads than planned, and methods that did not run."""
    there, begun = scored(found), {result.run.workload for result in results.values()}
    missing = [Gap(_why_not(name, results), {"name": name}) for name in sorted(begun.difference(there))]
    missing += [Gap(Lack.NOT_RUN, {"name": name}) for name in sorted({*WORKLOADS} - begun)]
    for name in [name for name in WORKLOADS if name in begun]:
        counts = [score.seeds for score in found if score.workload == name]
        few = [count for count in counts if count < len(reporting_seeds(name))]
        if few:
            seeds = {"of": len(reporting_seeds(name)), "count": len(few), "least": min(few)}
            missing.append(Gap(Lack.SEEDS, {"name": name, **seeds}))
    missing += [Gap(Lack.SECOND_TRY, {"name": name, "method": label(one)}) for name, one in _second_tries(results)]
    for row in overall(found):
        if row.workloads < len(there):
            counted = {"count": row.workloads, "of": len(there)}
            missing.append(Gap(Lack.PARTLY, {"method": label(row.method), **counted}))
    return missing + _without_a_run(results)


def cautions(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """The warnings that a reader needs before anything else."""
    smoke = any(result.run.size == "smoke" for result in results.values())
    said = ["These runs are of size smoke: a look at how it works, whose numbers mean nothing."] if smoke else []
    return said + [
        f"`{name}` is too easy: AdamW's default reaches its reference within a tenth of the budget. It tells little, "
        "and is to be replaced."
        for name in too_easy(found)
    ]


def _why_not(workload: str, results: Mapping[str, Result]) -> Lack:
    """The reason why a workload has no scores."""
    best = chosen(workload, results)
    if all(result.run.method != REFERENCE for result in results.values() if result.run.workload == workload):
        return Lack.NO_REFERENCE
    if search_of(workload, results) is None:
        return Lack.SEARCHING
    if best is None:
        return Lack.SEARCH_FAILED
    runs = reported(results).get((workload, REFERENCE, best), [])
    return Lack.NO_ERROR if any(run.end is not None for run in runs) else Lack.UNFINISHED


def _without_a_run(results: Mapping[str, Result]) -> list[Gap]:
    """The methods of which no run has ended, such as those whose package is not there, and why."""
    by_method: dict[str, list[Result]] = {}
    for result in results.values():
        by_method.setdefault(result.run.method, []).append(result)
    found = []
    for method, some in sorted(by_method.items()):
        if all(result.state not in SETTLED for result in some):
            why = one_line(next((result.reason for result in some if result.reason), ""))
            found.append(Gap(Lack.NO_RUN, {"method": label(method), "why": why.replace("`", "'")}))  # no code
    return found


def _second_tries(results: Mapping[str, Result]) -> list[tuple[str, str]]:
    """Workload and method of second configurations that are due and have no run yet."""
    methods = [name for name in METHODS if any(result.run.method == name for result in results.values())]
    size: Size = next((result.run.size for result in results.values()), "full")
    begun = [name for name in WORKLOADS if any(result.run.workload == name for result in results.values())]
    runs = (run for run in wanted(begun, methods, size, results) if run.configuration == SECOND)
    return list(dict.fromkeys((run.workload, run.method) for run in runs if run.id not in results))


# --- ours against the others ------------------------------------------------------------------------------------------


def standing_grid(found: Sequence[Score]) -> Grid:
    """The best and the worst of both sides, and on how many workloads each is ahead or as good as tuned."""
    table, rows, pairs = table_of(found), best_first(found), contests(found)
    columns = [
        _column([row for row in rows if is_ours(row.method) == own], [s for name in side for s in table[name].values()])
        for own, side in zip((True, False), sides(table), strict=True)
    ]
    ahead = [[one.standing for one in pairs].count(sign) for sign in (1, -1)]
    columns = [[*cells, f"{count} of {len(pairs)}"] for cells, count in zip(columns, ahead, strict=True)]
    heads = (
        "the lowest geometric mean of scores",
        "the lowest worst score",
        "the worst score of all",
        f"as good as tuned, within {LEVEL:.0%}, or better, on",
        "the best of them ahead of the best of the other side, on",
    )
    cells = tuple(zip(heads, *columns, strict=True)) if table else ()
    title = f"Ours against the others; scores within {LEVEL:.0%} of each other are level"
    return Grid(title, ("", "ours", "the others"), cells, left=3)


def _column(rows: Sequence[Overall], own: Sequence[Score]) -> list[str]:
    """One side: the methods with a score everywhere, and all scores."""
    worst = max(own, key=lambda score: score.ratio, default=None)
    good, every = {score.workload for score in own if score.ratio <= 1 + LEVEL}, {score.workload for score in own}
    names = f": {', '.join(f'`{name}`' for name in sorted(good))}" if good < every else ""
    safest = min(rows, key=lambda row: row.worst, default=None)
    return [
        f"{label(rows[0].method)}, {three_digits(rows[0].mean)}" if rows else "–",
        "–" if safest is None else f"{label(safest.method)}, {three_digits(safest.worst)} (`{safest.where}`)",
        "–" if worst is None else f"{label(worst.method)}, {three_digits(worst.ratio)} (`{worst.workload}`)",
        f"{len(good)} of {len(every)}{names if good else ''}",
    ]


SIGNS: dict[int, tuple[str, Sign, str]] = {
    1: ("ahead", "good", "✓"),
    0: ("level", "even", "="),
    -1: ("behind", "bad", "✕"),
}
"""The word and the signs of a standing."""

SCORE = "A score is a validation measure at the end over the tuned reference's: 1 is as good as tuned, less is better."
OVERLAP = "“Seeds overlap”: the ranges of both methods over their seeds, from the least to the greatest, overlap."


def contest_answer(found: Sequence[Score]) -> Answer:
    """On which workloads the best of ours is ahead of the best of the others; then each of ours by itself."""
    every = contests(found)
    longest = max((abs(math.log(one.lead)) for one in every), default=1.0) or 1.0

    def case(one: Contest) -> Case:
        scores = ", ".join(_scored(score) for score in (one.ours, one.other))
        weight = abs(math.log(one.lead)) / longest if one.standing else 0.0
        return Case(one.workload.replace("_", " "), scores, one.doubt.value, weight)

    groups = tuple(
        Group(word, sign, tuple(case(one) for one in every[:: sign_of or 1] if one.standing == sign_of))
        for sign_of, (word, sign, _) in SIGNS.items()
    )
    notes = [f"{SCORE} Here the best of ours is beside the best of the others; scores within {LEVEL:.0%} are level."]
    notes += [OVERLAP] if any(one.doubt is Doubt.OVERLAP for one in every) else []
    return Answer(
        "Where are ours ahead, and where behind?", "benchmark", "workload", groups, " ".join(notes), record_grid(found)
    )


def record_grid(found: Sequence[Score]) -> Grid:
    """The score of each of ours on each workload beside the best of the others there; the lowest mean first."""
    every, table = {one.workload: one.other for one in contests(found)}, table_of(found)
    means = {row.method: row.mean for row in best_first(found)}
    ours = sorted(sides(table)[0], key=lambda name: means.get(name, math.inf))
    rows = [
        (
            label(one),
            three_digits(means.get(one, math.nan)),
            *(_beside(table[one].get(at), best) for at, best in every.items()),
        )
        for one in ours
    ]
    rows.append(("the best of the others", "", *map(_scored, every.values())))
    doubtful = any(cell.endswith("?") for row in rows for cell in row)
    title = "Each of ours against the best of the others: ✓ ahead, = level, ✕ behind"
    title += f"; a question mark where either has fewer than {FEW} seeds, or seeds overlap" if doubtful else ""
    heads = ("", "geometric mean", *(name.replace("_", " ") for name in every))
    return Grid(title, heads, tuple(rows) if every else ())


def _beside(score: Score | None, best: Score) -> str:
    if score is None:
        return "–"
    contest = Contest(score.workload, score, best)
    return f"{three_digits(score.ratio)} {SIGNS[contest.standing][2]}{'?' if contest.doubt else ''}"


def _scored(score: Score) -> str:
    return f"{label(score.method)} {three_digits(score.ratio)}"


def lead_grid(results: Mapping[str, Result], found: Sequence[Score]) -> Grid:
    """The means of ours over that of the best of the others, early, by other seeds, and without the best workload."""
    rows, table, every = {row.method: row for row in overall(found)}, table_of(found), leads(results, found)
    other = every[0].other if every else ""
    second = min((row.second for row in best_first(found) if not is_ours(row.method)), default=math.nan)
    cells = tuple(_lead(one, rows, Pair.of(table, one.ours, one.other), second) for one in every)
    early = (f"at {percent} %" for percent in EARLY)
    headings = ("", "at the end", f"{SURE:.0%} interval", "without its best workload", *early, "with second tries")
    title = (
        f"Geometric means of ours over that of {label(other)}, the best of the others: below 1 ours is ahead. In "
        "brackets, on how many workloads. The interval is a bootstrap over seeds"
    )
    return Grid(title, headings, cells)


def _lead(lead: Lead, rows: Mapping[str, Overall], pair: Pair, second: float) -> tuple[str, ...]:
    """One row; `second` is the best mean of the others with second tries."""
    mine, its = rows[lead.ours], rows[lead.other]
    interval = f"{three_digits(lead.low)} to {three_digits(lead.high)}" if lead.low < lead.high else "–"
    few = f"; few seeds on {', '.join(f'`{name}`' for name in lead.few)}" if lead.few else ""
    return (
        label(lead.ours),
        f"{three_digits(lead.ratio)} {_counted(pair.standings)}",
        interval + few,
        f"{three_digits(lead.then)} (`{lead.without}`)" if lead.without else "–",
        *(f"{three_digits(mine.early[p] / its.early[p])} {_counted(pair.standings_at(p))}" for p in EARLY),
        three_digits(mine.second / second),
    )


def _counted(stands: Sequence[int]) -> str:
    return f"({stands.count(1)} of {len(stands)})"


def duel_grid(found: Sequence[Score]) -> Grid:
    """On how many workloads each of ours is ahead of each of the others."""
    every = {(one.ours, one.other): one for one in duels(found)}
    ours, others = (list(dict.fromkeys(names)) for names in zip(*every, strict=True)) if every else ([], [])
    rows = []
    for other in others:
        pairs = [every.get((one, other)) for one in ours]
        rows.append((label(other), *("–" if p is None else f"{p.ahead} of {p.of} ({p.surely})" for p in pairs)))
    title = (
        "On how many workloads ours are ahead, by medians; in brackets, on how many of these even the worst seed of "
        "ours is better than the other's best"
    )
    return Grid(title, ("ahead of", *map(label, ours)), tuple(rows))


def hindsight(results: Mapping[str, Result]) -> list[str]:
    """A sentence on the fixed configuration that is best in hindsight; empty if there is none."""
    if (found := in_hindsight(results)) is None:
        return []
    name, mean, worst = found
    settings = settings_text(searched()[name].settings)
    return [
        f"In hindsight: one configuration of the search for references, `{name}` ({settings}, cosine), has a geometric "
        f"mean of {three_digits(mean)} and a worst score of {three_digits(worst)} over these workloads, from one seed."
    ]


# --- every method and every workload ----------------------------------------------------------------------------------

NOTE = (
    "Scores are validation measures at the end over the tuned reference's: 1 is as good as tuned, less is better. Ours "
    "are in bold. A † marks scores with runs that diverged, raised an error or made the network worse: these count as "
    "the untrained network. With second tries, the second configuration counts where it is the better one. At "
    f"{EARLY[0]} % and {EARLY[1]} %: the geometric mean after so much of the budget. A miss is a workload on which the "
    "median never comes within 10 % of the reference."
)


def score_grid(found: Sequence[Score]) -> Grid:
    """A row for each method, the best geometric mean first; second configurations below, without a mean."""
    names = scored(found)
    by_place = {(s.method, s.configuration, s.workload): s for s in found}
    means = ("geometric mean", "with second tries", *(f"at {percent} %" for percent in EARLY), "worst", "misses")
    rows = []
    for row in overall(found):
        numbers = (row.mean, row.second, *(row.early[percent] for percent in EARLY), row.worst)
        own = [s for s in found if s.method == row.method and (s.configuration == FIRST or row.method == REFERENCE)]
        cells = {score.workload: score for score in own}
        title = f"**{label(row.method)}**" if is_ours(row.method) else label(row.method)
        whole = (*map(three_digits, numbers), str(len(row.misses)))
        rows.append((title, *whole, *(_cell(cells.get(name)) for name in names)))
    for method in sorted({s.method for s in found if s.configuration == SECOND}):
        own_cells = (_cell(by_place.get((method, SECOND, name))) for name in names)
        rows.append((f"*{label(method, SECOND)}*", *("" for _ in means), *own_cells))
    return Grid("Scores", ("", *means, *(name.replace("_", " ") for name in names)), tuple(rows))


def _cell(score: Score | None) -> str:
    if score is None or math.isnan(score.ratio):
        return "–"
    return three_digits(score.ratio) + ("†" if score.marked else "")


def workload_grid(workload: str, own: Iterable[Score]) -> Grid:
    """All numbers of a workload, the best first."""
    headings = (
        "method",
        title_of(workload)[1],
        "least to greatest",
        "score",
        *(f"at {percent} %" for percent in EARLY),
        "time to the reference",
        "seconds",
        "runs",
    )
    cells = [_row(score) for score in sorted(own, key=lambda score: (score.median, score.method))]
    return Grid("Medians over seeds", headings, tuple(cells))


def _row(score: Score) -> tuple[str, ...]:
    ended = f"{score.seeds}"
    if score.unfinished:
        ended += f", {score.unfinished} diverged or raised an error"
    if score.spoiled:
        ended += f", {score.spoiled} worse than untrained"
    return (
        label(score.method, score.configuration),
        three_digits(score.median),
        f"{three_digits(score.low)} to {three_digits(score.high)}",
        three_digits(score.ratio),
        *(three_digits(score.early[percent]) for percent in EARLY),
        "never" if math.isinf(score.time) else "" if math.isnan(score.time) else f"{100 * score.time:.0f} %",
        f"{score.seconds:.1f}",
        ended,
    )


def report_text(results: Mapping[str, Result], figures: Sequence[str]) -> str:
    """All of it. `figures` are the names of those that were drawn."""
    found = scores(results)
    parts = ["# The benchmark: training without tuning", *(f"**{escaped(said)}**" for said in cautions(results, found))]
    parts += [f"**{contest_answer(found).sentence()}**", markdown(record_grid(found))] if contests(found) else []
    parts += ["## Against what people use today", escaped(" ".join(coverage(results, found)))]
    parts.append(markdown(standing_grid(found)))
    parts += [markdown(lead_grid(results, found)), *map(escaped, hindsight(results)), markdown(duel_grid(found))]
    pictures = {name: f"![{name}]({name}.png)" for name in figures}
    if overall(found):
        parts += ["## Over all workloads", NOTE, markdown(score_grid(found))]
    parts += [pictures[name] for name in ("overview", "profile") if name in pictures]
    for workload in sorted({score.workload for score in found}):
        own = [score for score in found if score.workload == workload]
        parts += [f"## {workload}: {escaped(title_of(workload)[0])}", _reference(workload, results)]
        parts += [markdown(workload_grid(workload, own)), pictures.get(f"workload-{workload}", "")]
    parts += ["## Configurations", markdown(configuration_grid(found))] if found else []
    if told := troubles(results.values()):
        parts += ["## What did not finish", "\n".join(f"- {quoted(sentence)}" for sentence in told)]
    if made := origins(results.values()):
        parts += ["## Provenance", "\n".join(f"- {quoted(origin.sentence())}" for origin in made)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _reference(workload: str, results: Mapping[str, Result]) -> str:
    if (best := chosen(workload, results)) is None:
        return "There is no reference yet."
    settings = quoted(settings_text(chosen_settings(workload, results)))
    return f"The reference is {settings} (`{best}`, chosen from seed {CHOOSING})."
