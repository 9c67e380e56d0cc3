"""The benchmark against methods without tuning, as Markdown and pictures: what came of it, once it was run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median

from measured import ROOT, table

from hotswap.bench.exchange import read_results
from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.plan import chosen_settings
from hotswap.bench.report.comparing import Pair, is_ours, leads, scored, table_of
from hotswap.bench.report.configured import settings_text
from hotswap.bench.report.figures import draw_overview, draw_profile, draw_workload
from hotswap.bench.report.looks import label, three_digits, title_of
from hotswap.bench.report.origin import commands, durations, origins
from hotswap.bench.report.text import workload_grid
from hotswap.bench.report.verdict import (
    RIVALS,
    advice,
    cautions,
    coverage,
    doubts,
    each_of_ours,
    verdict,
)
from hotswap.bench.runs import Result, troubles
from hotswap.bench.scores import EARLY, Score, overall, reported, scores, untrained
from hotswap.report.figures.style import save
from hotswap.studies.exchange.shipped import BENCHMARK

PICTURES = ROOT / "docs" / "pictures"
NOT_YET = "The benchmark has not been run yet, so there is nothing to tell."


@cache
def results() -> Mapping[str, Result] | None:
    """What was measured; None while there is nothing."""
    folder, file = BENCHMARK
    if not (ROOT / "results" / folder / file).is_file():
        return None
    return {result.run.id: result for result in read_results(ROOT / "results" / folder)}


def came_of_it() -> str:
    """Everything that was measured, or a sentence."""
    found = results()
    return NOT_YET if found is None else section(found)


def section(found: Mapping[str, Result]) -> str:
    """The sentences, the table of scores, the profile, the references, and where it all comes from."""
    every = scores(found)
    parts = [
        " ".join(coverage(found, every)),
        *(f"**{sentence}**" for sentence in cautions(found, every)),
        _bullets([*verdict(every), *doubts(found, every)]),
    ]
    if scored(every):
        parts += [
            "### Scores",
            "Validation measures at the end over the tuned reference's: 1 is as good as tuned, less is better. Ours in "
            "bold. A † marks scores with runs that diverged, raised an error or made the network worse: these count as "
            "the untrained network. With second tries, the second configuration counts where it is the better one. At "
            "10 % and 30 %: the geometric mean of what there is after so much of the budget, over the same numbers.",
            "![The scores of each method on every workload, and their geometric mean](pictures/benchmark-overview.svg)",
            score_table(every),
            "![Share of workloads on which a method's score is at most τ](pictures/benchmark-profile.svg)",
            "### Each of ours",
            _bullets(each_of_ours(every)),
            "### The tuned references",
            "The last column is the score of a network before its first step, and so the greatest there can be.",
            workload_table(found, every),
        ]
    return "\n\n".join(part.strip() for part in (*parts, where_from(found)))


def one_by_one() -> str:
    """Every workload's curves and numbers, what did not finish, and the commands; or a sentence."""
    found = results()
    if found is None:
        return NOT_YET
    every = scores(found)
    parts = [f"## {name}\n\n{_on_workload(name, every)}" for name in _workloads(every)]
    if told := troubles(found.values()):
        parts.append(f"## What did not finish\n\n{_bullets(told)}")
    typed = "\n".join(f"- `{command}`" for command in commands(found))
    parts.append(f"## What made them\n\n{where_from(found)}\n\n{typed}")
    return "\n\n".join(parts)


def score_table(every: Sequence[Score]) -> str:
    """A row for each method, the best geometric mean first; second configurations below, without a mean."""
    names = scored(every)
    firsts, seconds = _tries(every)
    means = ("geometric mean", "with second tries", *(f"at {percent} %" for percent in EARLY), "worst", "misses")
    rows = []
    for row in overall(every):
        early = (three_digits(row.early[percent]) for percent in EARLY)
        whole = (*map(three_digits, (row.mean, row.second)), *early, three_digits(row.worst), str(len(row.misses)))
        rows.append((_titled(row.method), *whole, *(_cell(firsts.get((row.method, name))) for name in names)))
    for method in sorted({method for method, _ in seconds}):
        own = (_cell(seconds.get((method, name))) for name in names)
        rows.append((f"*{label(method, SECOND)}*", *("" for _ in means), *own))
    return table(("", *means, *(name.replace("_", " ") for name in names)), rows)  # without underscores, names can wrap


def short_table(every: Sequence[Score]) -> str:
    """Ours, and what most people would take instead."""
    kept = (REFERENCE, *RIVALS)
    firsts, seconds = _tries(every)
    rows = []
    for row in overall(every):
        if not is_ours(row.method) and row.method not in kept:
            continue
        worst, again = firsts[row.method, row.where], seconds.get((row.method, row.where))
        notes = [] if row.method == REFERENCE else [row.where.replace("_", " ")]
        notes += ["counted as untrained"] if worst.marked else []
        notes += [f"second try {three_digits(again.ratio)}"] if again is not None else []
        told = three_digits(row.worst) + (f" ({'; '.join(notes)})" if notes else "")
        title = _titled(row.method) + (
            "" if row.workloads == len(scored(every)) else f", on {row.workloads} workloads only"
        )
        rows.append((title, three_digits(row.mean), three_digits(row.second), told))
    return table(("", "geometric mean of scores", "with second tries", "worst score"), rows)


def score_of(method: str, workload: str, configuration: str = FIRST) -> str:
    """One number, within a sentence."""
    wanted = (workload, method, configuration)
    score = next((s for s in _scores() if (s.workload, s.method, s.configuration) == wanted), None)
    return "–" if score is None else three_digits(score.ratio)


def mean_of(method: str, percent: int = 100) -> str:
    """Its geometric mean over all workloads, at the end or after so much of the budget, within a sentence."""
    means = {row.method: {**row.early, 100: row.mean} for row in overall(_scores())}
    return three_digits(means[method][percent]) if method in means else "–"


def passes_of(method: str) -> str:
    """For each step of a run: the least and the most of all workloads, by their medians."""
    runs = reported(results() or {})
    each = [
        median(run.end.cost / run.end.steps for run in some if run.end is not None)
        for (_, name, _), some in runs.items()
        if name == method and any(run.end is not None for run in some)
    ]
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(each), max(each)))) if each else "–"


def training_of(method: str, workload: str, other: str) -> str:
    """How low a method drives the training measure, on all workloads and on one of them, in a clause."""
    found = results()
    if found is None:
        return "its training loss is not known yet"
    levels: dict[str, dict[str, float]] = {}
    for (name, one, configuration), runs in reported(found).items():
        if configuration == FIRST and one != REFERENCE:
            levels.setdefault(name, {})[one] = median(
                run.end.train if run.end is not None else math.inf for run in runs
            )
    there = {name: those for name, those in levels.items() if method in those}
    lowest = [name for name, those in there.items() if those[method] == min(those.values()) < math.inf]
    own, others = (three_digits(there[workload][name]) if workload in there else "–" for name in (method, other))
    return (
        f"its training loss is the lowest of all methods on {len(lowest) or 'none'} of {len(there)} workloads, and on "
        f"`{workload}` it is {own}, where {label(other)}'s is {others}"
    )


def against(one: str, other: str) -> str:
    """Two methods on all workloads where both have a score, and without the one that favours the first; or nothing."""
    pair = Pair.of(table_of(_scores()), one, other)
    if not pair.decisive:
        return ""
    means, without = (tuple(map(three_digits, pair.means(name))) for name in ("", pair.decisive))
    stands = pair.standings
    level = (
        f", behind on {stands.count(-1)} and level on {stands.count(0)}"
        if 0 in stands
        else f" and behind on {stands.count(-1)}"
    )
    return (
        f"On {len(stands)} workloads {label(one)} has a geometric mean of scores of {means[0]}, and {label(other)} of "
        f"{means[1]}; the first is ahead on {stands.count(1)}{level}. "
        f"Without `{pair.decisive}`, where it gains most, the means are {without[0]} and {without[1]}."
    )


def leads_are_unsure(other: str) -> str:
    """Which of our leads over a method other seeds could turn around, in a sentence; or nothing."""
    found = results()
    if found is None:
        return ""
    unsure = [lead for lead in leads(found, scores(found)) if lead.other == other and lead.low <= 1 <= lead.high]
    names = " and ".join(label(lead.ours) for lead in unsure)
    return f"The lead of {names} over {label(other)} may be chance: other seeds could turn it around." if unsure else ""


def workload_table(found: Mapping[str, Result], every: Sequence[Score]) -> str:
    """A row for each workload: its reference, and what that reaches."""
    levels = {score.workload: score.median for score in every if score.method == REFERENCE}
    starts = untrained(reported(found))
    rows = []
    for name in scored(every):
        settings = settings_text(chosen_settings(name, found))
        budget = max(result.budget for result in found.values() if result.run.workload == name)
        most = three_digits(starts[name] / levels[name])
        rows.append((f"`{name}`", title_of(name)[1], settings, three_digits(levels[name]), f"{budget:,}", most))
    return table(("", "measure", "tuned reference", "its measure", "budget, in passes", "untrained"), rows, left=3)


def _on_workload(name: str, every: Sequence[Score]) -> str:
    grid = workload_grid(name, [score for score in every if score.workload == name])
    return f"![{name}](pictures/benchmark-{name}.svg)\n\n{table(grid.headings, grid.rows)}"


def where_from(found: Mapping[str, Result]) -> str:
    """Versions, devices and dates."""
    return f"*Source: `results/{BENCHMARK[0]}`. {' · '.join(origins(found))}.*"


def took() -> str:
    """How long the runs took, within a sentence; or a dash."""
    return "–" if (found := results()) is None else " and ".join(durations(found))


def in_short() -> str:
    """The scores of ours and of a few others, over what they are, and where they come from; or a sentence."""
    found = results()
    if found is None:
        return NOT_YET
    every = scores(found)
    return "\n\n".join([short_table(every), " ".join(coverage(found, every)), where_from(found)])


def wins_and_losses() -> str:
    """Of ours and of the others the best, and where ours are ahead, behind or level; or a sentence."""
    found = results()
    if found is None:
        return NOT_YET
    every = scores(found)
    return _bullets([*advice(every), *doubts(found, every)])


def draw(folder: Path = PICTURES) -> list[Path]:
    """Draw the figures of the page, if the benchmark was run."""
    found = results()
    if found is None:
        return []
    runs, every = reported(found), scores(found)
    figures = {"overview": draw_overview(every), "profile": draw_profile(every)}
    figures |= {name: draw_workload(name, runs) for name in _workloads(every)}
    drawn = []
    for name, figure in figures.items():
        if figure is not None:
            save(figure, folder / f"benchmark-{name}.svg")
            drawn.append(folder / f"benchmark-{name}.svg")
    return drawn


def _scores() -> list[Score]:
    """Those of what was measured; none before."""
    return [] if (found := results()) is None else scores(found)


def _titled(method: str) -> str:
    """What people call it; ours in bold."""
    return f"**{label(method)}**" if is_ours(method) else label(method)


def _tries(every: Sequence[Score]) -> tuple[dict[tuple[str, str], Score], dict[tuple[str, str], Score]]:
    """By method and workload: first configurations, the reference among them, and second ones."""
    firsts = {(s.method, s.workload): s for s in every if s.configuration == FIRST or s.method == REFERENCE}
    return firsts, {(s.method, s.workload): s for s in every if s.configuration == SECOND}


def _workloads(every: Sequence[Score]) -> list[str]:
    return sorted({score.workload for score in every})


def _cell(score: Score | None) -> str:
    if score is None or math.isnan(score.ratio):
        return "–"
    return three_digits(score.ratio) + ("†" if score.marked else "")


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


BLOCKS: dict[str, Callable[[], str]] = {
    "benchmark results": came_of_it,
    "benchmark, one by one": one_by_one,
    "benchmark in short": in_short,
    "benchmark advice": wins_and_losses,
    **{f"mean of {name}": partial(mean_of, name) for name in METHODS},
    "what the runs took": took,
    "the mean image": partial(score_of, "dog", "autoencoder"),
    **{f"dog on {name}": partial(score_of, "dog", name) for name in ("cifar_resnet", "fashion_convolution")},
    "cold d_adaptation": partial(score_of, "d_adaptation", "gaussian_regression"),
    "warmed d_adaptation": partial(score_of, "d_adaptation", "gaussian_regression", SECOND),
}
