"""The benchmark against methods without tuning, as Markdown and pictures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from statistics import median

from benchmarked import ends
from matplotlib.figure import Figure
from measured import ROOT, table

from hotswap.bench.exchange import read_results
from hotswap.bench.methods import FIRST, SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.plan import chosen_settings
from hotswap.bench.report.comparing import scored
from hotswap.bench.report.figures import draw_overview, draw_profile, draw_workload
from hotswap.bench.report.methods import origins, settings_text, three_digits, title_of
from hotswap.bench.report.text import (
    NOTE,
    cautions,
    coverage,
    duel_grid,
    hindsight,
    lead_grid,
    record_grid,
    score_grid,
    standing_grid,
    workload_grid,
)
from hotswap.bench.runs import Result, troubles
from hotswap.bench.scores import Overall, Score, overall, reported, scores, untrained
from hotswap.report.tables import markdown
from hotswap.store.shipped import BENCHMARK


@cache
def results() -> Mapping[str, Result]:
    """What was measured."""
    return {result.run.id: result for result in read_results(ROOT / "results" / BENCHMARK[0])}


@cache
def every() -> Sequence[Score]:
    """The scores."""
    return scores(results())


def section() -> str:
    """Every table over all workloads, and where it all comes from."""
    parts = [
        " ".join(coverage(results(), every())),
        *(f"**{sentence}**" for sentence in cautions(results(), every())),
        *map(markdown, (standing_grid(every()), record_grid(every()), lead_grid(results(), every()))),
        *hindsight(results()),
        "### Scores",
        NOTE,
        "![The scores of each method on every workload, and their geometric mean](pictures/benchmark-overview.svg)",
        markdown(score_grid(every())),
        "![Share of workloads on which a method's score is at most τ](pictures/benchmark-profile.svg)",
        "### Ours against each other method",
        markdown(duel_grid(every())),
        "### The tuned references",
        "The last column is the score of a network before its first step, and so the greatest there can be.",
        workload_table(),
    ]
    return "\n\n".join(part.strip() for part in (*parts, where_from()))


def one_by_one() -> str:
    """Every workload's curves and numbers, what did not finish, and the commands."""
    parts = []
    for name in workloads():
        grid = workload_grid(name, [score for score in every() if score.workload == name])._replace(title="")
        parts.append(f"## {name}\n\n![{name}](pictures/benchmark-{name}.svg)\n\n{markdown(grid).strip()}")
    if told := troubles(results().values()):
        parts.append("## What did not finish\n\n" + "\n".join(f"- {sentence}" for sentence in told))
    commands = sorted({command for origin in origins(results().values()) for command in origin.commands})
    typed = "\n".join(f"- `{command}`" for command in commands)
    return "\n\n".join([*parts, f"## What made them\n\n{where_from()}\n\n{typed}"])


def workload_table() -> str:
    """A row for each workload: its reference, and what that reaches."""
    levels = {score.workload: score.median for score in every() if score.method == REFERENCE}
    starts, rows = untrained(reported(results())), []
    for name in scored(every()):
        settings = settings_text(chosen_settings(name, results()))
        budget = max(result.budget for result in results().values() if result.run.workload == name)
        most = three_digits(starts[name] / levels[name])
        rows.append((f"`{name}`", title_of(name)[1], settings, three_digits(levels[name]), f"{budget:,}", most))
    return table(("", "measure", "tuned reference", "its measure", "budget, in passes", "untrained"), rows, left=3)


def where_from() -> str:
    """Versions, devices and dates."""
    made = " ".join(origin.sentence() for origin in origins(results().values()))
    return f"*Source: `results/{BENCHMARK[0]}`. {made}*"


def took() -> str:
    """How long the runs of each kind of device trained together, within a sentence."""
    hours: Counter[str] = Counter()
    for result in results().values():
        hours[str(result.origin.get("device"))] += (result.points[-1].seconds if result.points else 0.0) / 3600
    return " and ".join(f"{count:.1f} hours on {device}" for device, count in sorted(hours.items()))


def score_of(method: str, workload: str, configuration: str = FIRST) -> str:
    """One number, within a sentence."""
    found = {(s.method, s.workload, s.configuration): s.ratio for s in every()}
    return three_digits(found.get((method, workload, configuration), math.nan)) or "–"


def mean_of(method: str, percent: int = 100) -> str:
    """Its geometric mean over all workloads, at the end or after so much of the budget, within a sentence."""
    return _of(method, lambda row: {**row.early, 100: row.mean}[percent])


def worst_of(method: str) -> str:
    """Its worst score of all workloads, within a sentence."""
    return _of(method, lambda row: row.worst)


def _of(method: str, value: Callable[[Overall], float]) -> str:
    return next((three_digits(value(row)) for row in overall(every()) if row.method == method), "–")


def passes_of(method: str) -> str:
    """For each step of a run: the least and the most of all workloads, by their medians."""
    runs = {key: [run.end for run in some if run.end is not None] for key, some in reported(results()).items()}
    each = [median(e.cost / e.steps for e in some) for (_, name, _), some in runs.items() if name == method and some]
    return ends(each) if each else "–"


def training_of(method: str, workload: str) -> str:
    """How low a method drives the training measure on a workload, within a sentence."""
    runs = reported(results()).get((workload, method, FIRST), [])
    return three_digits(median(run.end.train if run.end is not None else math.inf for run in runs)) if runs else "–"


def workloads() -> list[str]:
    """Their names."""
    return sorted({score.workload for score in every()})


def figures() -> dict[str, Figure | None]:
    """The figures of the page, by the names of their files."""
    found = {"overview": draw_overview(every()), "profile": draw_profile(every())}
    found |= {name: draw_workload(name, reported(results())) for name in workloads()}
    return {f"benchmark-{name}.svg": figure for name, figure in found.items()}


BLOCKS: dict[str, Callable[[], str]] = {
    "benchmark results": section,
    "benchmark, one by one": one_by_one,
    "what the runs took": took,
    "the mean image": partial(score_of, "dog", "autoencoder"),
    **{f"dog on {name}": partial(score_of, "dog", name) for name in ("cifar_resnet", "fashion_convolution")},
    "cold d_adaptation": partial(score_of, "d_adaptation", "gaussian_regression"),
    "warmed d_adaptation": partial(score_of, "d_adaptation", "gaussian_regression", SECOND),
}
