"""The report in words and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hotswap.bench.plan import CHOOSING, chosen, chosen_settings
from hotswap.bench.report.configured import configurations, settings_text
from hotswap.bench.report.looks import label, three_digits, title_of
from hotswap.bench.report.origin import origins
from hotswap.bench.report.verdict import cautions, coverage, doubts, each_of_ours, verdict
from hotswap.bench.runs import Result, troubles
from hotswap.bench.scores import EARLY, Overall, Score, overall, scores
from hotswap.report.markdown import escaped, quoted
from hotswap.report.tables import Grid, table_text

__all__ = ["report_text", "workload_grid"]


def report_text(results: Mapping[str, Result], figures: Sequence[str]) -> str:
    """All of it. `figures` are the names of those that were drawn."""
    found = scores(results)
    parts = ["# The benchmark: training without tuning\n"]
    parts += [f"**{escaped(sentence)}**\n" for sentence in cautions(results, found)]
    parts += _verdict(results, found)
    parts += _over_all(overall(found), figures)
    for workload in sorted({score.workload for score in found}):
        parts += _on_workload(workload, [score for score in found if score.workload == workload], results, figures)
    parts += _configurations(found)
    if told := troubles(results.values()):
        parts += ["## What did not finish\n", *(f"- {quoted(sentence)}" for sentence in told), ""]
    if lines := origins(results):
        parts += ["## Provenance\n", *(f"- {quoted(line)}" for line in lines), ""]
    return "\n".join(parts)


def _verdict(results: Mapping[str, Result], found: Sequence[Score]) -> list[str]:
    """Where ours win and where they lose, and over how many workloads that is."""
    said = ["## Against what people use today\n", escaped(" ".join(coverage(results, found))) + "\n"]
    if found:
        said += [
            escaped(" ".join([*verdict(found), *doubts(results, found)])) + "\n",
            *(f"- {escaped(sentence)}" for sentence in each_of_ours(found)),
            "",
        ]
    return said


def _over_all(rows: Sequence[Overall], figures: Sequence[str]) -> list[str]:
    if not rows:
        return []  # the sentences above say why
    headings = (
        "method",
        "workloads",
        "geometric mean",
        "with second tries",
        *(f"at {percent} %" for percent in EARLY),
        "worst",
        "misses",
        "diverged or raised an error on",
    )
    cells = [
        (
            label(row.method),
            str(row.workloads),
            three_digits(row.mean),
            three_digits(row.second),
            *(three_digits(row.early[percent]) for percent in EARLY),
            f"{three_digits(row.worst)} ({row.where})",
            _names(row.misses),
            _names(row.failures),
        )
        for row in rows
    ]
    note = (
        "Scores are validation measures at the end over the tuned reference's: 1 is as good as tuned, less is better. "
        "With second tries, the second configuration of a method counts where it is better than the first. "
        "A miss is a workload on which the median never comes within 10 % of the reference.\n"
    )
    pictures = [
        f"![{told}]({name}.png)\n"
        for name, told in (("overview", "All scores"), ("profile", "Performance profile"))
        if name in figures
    ]
    return ["## Over all workloads\n", note, table_text(Grid("Scores", headings, tuple(cells))), *pictures]


def _on_workload(
    workload: str, own: Sequence[Score], results: Mapping[str, Result], figures: Sequence[str]
) -> list[str]:
    best, told = chosen(workload, results), settings_text(chosen_settings(workload, results))
    said = (
        f"The reference is {quoted(told)} (`{best}`, chosen from seed {CHOOSING}).\n"
        if best
        else "There is no reference yet.\n"
    )
    picture = [f"![Validation over cost](workload-{workload}.png)\n"] if f"workload-{workload}" in figures else []
    return [
        f"## {workload}: {escaped(title_of(workload)[0])}\n",
        said,
        table_text(workload_grid(workload, own)),
        *picture,
    ]


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


def _configurations(found: Sequence[Score]) -> list[str]:
    rows = configurations(found)
    if not rows:
        return []
    grid = Grid("One for all workloads", ("method", "package", "settings", "source"), tuple(rows))
    return ["## Configurations\n", table_text(grid, left=4)]


def _names(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"
