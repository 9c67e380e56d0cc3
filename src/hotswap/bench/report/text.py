"""The report in words and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hotswap.bench.methods import FIRST, METHODS
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.plan import CHOOSING, chosen, chosen_settings
from hotswap.bench.report.looks import label, three_digits, title_of
from hotswap.bench.report.origin import origins
from hotswap.bench.report.verdict import coverage, each_of_ours, hindsight, verdict
from hotswap.bench.runs import Result, troubles
from hotswap.bench.scores import EARLY, Overall, Score, overall, scores, too_easy
from hotswap.report.tables import Grid, table_text

__all__ = ["report_text", "workload_grid"]


def report_text(results: Mapping[str, Result], figures: Sequence[str]) -> str:
    """All of it. `figures` are the names of those that were drawn."""
    found = scores(results)
    size = next((result.run.size for result in results.values()), "full")
    parts = ["# The benchmark: training without tuning\n"]
    if size == "smoke":
        parts.append("Of size smoke: a look at how it works, whose numbers mean nothing.\n")
    for workload in too_easy(found):
        easy = f"AdamW's default reaches the reference of `{workload}` within a tenth of the budget."
        parts.append(f"**Too easy:** {easy} It tells little, and is to be replaced.\n")
    parts += _verdict(results, found)
    parts += _over_all(overall(found), figures)
    for workload in sorted({score.workload for score in found}):
        parts += _on_workload(workload, [score for score in found if score.workload == workload], results, figures)
    parts += _configurations(found)
    if told := troubles(results.values()):
        parts += ["## What did not finish\n", *(f"- {sentence}" for sentence in told), ""]
    if lines := origins(results):
        parts += ["## Provenance\n", *(f"- {line}" for line in lines), ""]
    return "\n".join(parts)


def _verdict(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """Where ours win and where they lose, and over how many workloads that is."""
    said = ["## Against what people use today\n", " ".join(coverage(results, found)) + "\n"]
    if found:
        said += [
            " ".join([*verdict(found), *hindsight(results)]) + "\n",
            *(f"- {sentence}" for sentence in each_of_ours(found)),
            "",
        ]
    return said


def _over_all(rows: Sequence[Overall], figures: Sequence[str]) -> list[str]:
    if not rows:
        return ["There are no scores yet: the search for a tuned reference is not complete on any workload.\n"]
    headings = ("method", "workloads", "geometric mean", "worst", "misses", "diverged or raised an error on")
    cells = [
        (
            label(row.method),
            str(row.workloads),
            three_digits(row.mean),
            f"{three_digits(row.worst)} ({row.where})",
            _names(row.misses),
            _names(row.failures),
        )
        for row in rows
    ]
    note = (
        "Scores are validation measures at the end over the tuned reference's: 1 is as good as tuned, less is better. "
        "A miss is a workload on which the median never comes within 10 % of the reference.\n"
    )
    picture = ["![Performance profile](profile.png)\n"] if "profile" in figures else []
    return ["## Over all workloads\n", note, table_text(Grid("Scores", headings, tuple(cells))), *picture]


def _on_workload(
    workload: str, own: Sequence[Score], results: Mapping[str, Result], figures: Sequence[str]
) -> list[str]:
    best, settings = chosen(workload, results), chosen_settings(workload, results)
    told = ", ".join(f"{name} {value}" for name, value in settings.items())
    said = (
        f"The reference is {told} (`{best}`, chosen from seed {CHOOSING}).\n"
        if best
        else "The search for the reference is not complete.\n"
    )
    picture = [f"![Validation over cost](workload-{workload}.png)\n"] if f"workload-{workload}" in figures else []
    return [f"## {workload}: {title_of(workload)[0]}\n", said, table_text(workload_grid(workload, own)), *picture]


def workload_grid(workload: str, own: Sequence[Score]) -> Grid:
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
    if score.endless:
        ended += f", {score.endless} diverged or raised an error"
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


def _configurations(found: Sequence[Score]) -> list[str]:
    cells = []
    for method, configuration in sorted({(score.method, score.configuration) for score in found}):
        if method in METHODS and method != REFERENCE:
            known = METHODS[method]().configuration(configuration)
            package = " ".join(METHODS[method].package or ("",))
            settings = ", ".join(f"`{name}={value}`" for name, value in known.settings.items())
            kind = "" if configuration == FIRST else configuration
            cells.append((label(method), kind, package, settings or "as they are", known.source))
    if not cells:
        return []
    grid = Grid("One for all workloads", ("method", "", "package", "settings", "source"), tuple(cells))
    return ["## Configurations\n", table_text(grid, left=5)]


def _names(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"
