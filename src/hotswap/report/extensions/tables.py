"""The tables about variants, and all of it as one Markdown text: the verdict, the findings, the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hotswap.report.extensions.comparison import Comparison
from hotswap.report.extensions.findings import Finding, findings
from hotswap.report.extensions.variants import GROUPS, changes, group_of
from hotswap.report.extensions.verdict import DECIDING, Prize, prize
from hotswap.report.extensions.words import factor, listed
from hotswap.report.markdown import escaped
from hotswap.report.tables import Grid, table_text
from hotswap.studies.algorithms import HotSwapFamily

__all__ = [
    "epoch_grid",
    "error_grid",
    "findings_text",
    "in_groups",
    "markdown_text",
    "method",
    "objective_grid",
    "prize_grid",
    "variant_grid",
]


def in_groups(comparison: Comparison) -> dict[str, list[HotSwapFamily]]:
    """The variants by group, in the order of `GROUPS`, the paper's own algorithm left out."""
    found: dict[str, list[HotSwapFamily]] = {group: [] for group in GROUPS}
    for family in comparison.others:
        found[group_of(family, comparison.paper)].append(family)
    return {group: families for group, families in found.items() if families}


def variant_grid(comparison: Comparison) -> Grid:
    """What each variant changes, what came of it and what it costs, each in one number for all batch sizes."""
    rows = [(rival.whole, "", rival.key) for rival in comparison.present if rival.key != "paper"]
    if comparison.paper is not None:
        rows.insert(0, (f"`{comparison.paper.name}`", "the paper's algorithm", comparison.paper.name))
    for families in in_groups(comparison).values():
        rows += [(f"`{f.name}`", changes(f, comparison.paper), f.name) for f in families]
    title = (
        "The variants; objectives over that of the paper's algorithm, the geometric mean over batch sizes; trials and "
        "costs, the median"
    )
    heads = ("variant", "with", *(f"objective at {cost}" for cost in comparison.moments))
    return Grid(
        title,
        (*heads, "trials per step", "cost of an epoch"),
        tuple((name, change, *_gains(comparison, who), *_effort(comparison, who)) for name, change, who in rows),
    )


def _gains(comparison: Comparison, who: str) -> list[str]:
    """At each cost, by what factor the objective is that of the paper's algorithm."""
    if comparison.paper is not None and who == comparison.paper.name:
        who = "paper"
    shown = []
    for cost in comparison.moments:
        ratios = [comparison.ratio(who, size, cost) for size in comparison.batch_sizes]
        with np.errstate(divide="ignore"):
            shown.append(_shown(float(np.exp(np.mean(np.log(ratios)))), _ratio))
    return shown


def _effort(comparison: Comparison, name: str) -> tuple[str, str]:
    sizes = comparison.batch_sizes
    trials = float(np.median([comparison.trials(name, size) for size in sizes]))
    cost = float(np.median([comparison.relative_cost(name, size) for size in sizes]))
    return _shown(trials, "{:.2f}".format), _shown(cost, "{:.2f}".format)


def objective_grid(comparison: Comparison, cost: int) -> Grid:
    """Objectives at a cost, by batch size, and how many times that of the paper's algorithm they are.

    Bold is what is ahead of all who decide.
    """
    title = (
        f"Training objective at the cost of {cost} plain epochs; in brackets, how many times that of the paper's "
        "algorithm; bold, what is ahead of all three who decide"
    )
    return _at_cost(comparison, title, lambda who, size: _objective(comparison, who, size, cost))


def error_grid(comparison: Comparison, cost: int) -> Grid:
    """Test errors at a cost, by batch size."""
    title = f"Test error at the cost of {cost} plain epochs"
    return _at_cost(
        comparison, title, lambda who, size: _shown(comparison.value(who, size, cost, "test_error"), "{:.2%}".format)
    )


def _at_cost(comparison: Comparison, title: str, cell: Callable[[str, int], str]) -> Grid:
    rows = [(rival.whole, rival.key) for rival in comparison.present]
    rows += [(f"`{family.name}`", family.name) for families in in_groups(comparison).values() for family in families]
    sizes = comparison.batch_sizes
    return Grid(
        title,
        ("", *(f"batch {size}" for size in sizes)),
        tuple((label, *(cell(who, size) for size in sizes)) for label, who in rows),
    )


def _objective(comparison: Comparison, who: str, size: int, cost: int) -> str:
    value, ratio = comparison.value(who, size, cost), comparison.ratio(who, size, cost)
    text = _shown(value, "{:.1e}".format)
    if who == "paper" or not math.isfinite(ratio):
        return text
    text = f"{text} ({_ratio(ratio)})"
    rivals = {rival.key for rival in DECIDING}
    return f"**{text}**" if who not in {*rivals, "sgd best"} and _first(comparison, who, size, cost) else text


def _first(comparison: Comparison, who: str, size: int, cost: int) -> bool:
    """Whether a variant is ahead of all who decide, there."""
    return all(comparison.ratio(who, size, cost, rival.key) < 1 for rival in DECIDING)


def epoch_grid(comparison: Comparison, families: Sequence[HotSwapFamily], title: str) -> Grid:
    """Objective and test error epoch by epoch, whatever they cost, with trials per step and the cost of an epoch."""
    names = [family.name for family in families]
    heads = ("variant", "batch", *(f"epoch {e}" for e in comparison.epochs), "trials per step", "cost of an epoch")
    rows = []
    for name in names:
        for size in comparison.batch_sizes:
            cells = [_moment(comparison, name, size, epoch) for epoch in comparison.epochs]
            trials, cost = comparison.trials(name, size), comparison.relative_cost(name, size)
            effort = (_shown(value, "{:.2f}".format) for value in (trials, cost))
            rows.append((f"`{name}`", str(size), *cells, *effort))
    return Grid(title, heads, tuple(rows))


def _moment(comparison: Comparison, name: str, size: int, epoch: int) -> str:
    key = (name, size, epoch)
    if key not in comparison.by_epoch.index:
        return "–"
    row = comparison.by_epoch.loc[key]
    return f"{_shown(row['train_nll'], '{:.1e}'.format)}, {_shown(row['test_error'], '{:.2%}'.format)}"


def prize_grid(verdict: Prize, most: int = 10) -> Grid:
    """Who came nearest: in how many comparisons a variant is ahead, and where it is worst."""
    rows = []
    for standing in verdict.standings[:most]:
        if not standing.whole:
            continue
        worst = standing.worst
        where = f"{worst.rival.whole}, batch {worst.batch_size}, cost {worst.cost}"
        rows.append(
            (f"`{standing.variant}`", f"{standing.leads} of {len(standing.margins)}", _ratio(worst.lead), where)
        )
    title = "Who came nearest; a lead is the rival's objective over the variant's, so that above 1 the variant is ahead"
    return Grid(title, ("variant", "ahead in", "smallest lead", "over whom, and where"), tuple(rows))


def _ratio(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "–"
    return factor(ratio) if ratio >= 9.95 else f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.1g}"


def _shown(value: float, text: Callable[[float], str]) -> str:
    """A number; a dash for what is not known, and a word for what has diverged."""
    if math.isnan(value):
        return "–"
    return text(value) if math.isfinite(value) else "diverged"


def method(comparison: Comparison) -> str:
    """How it was compared, in a paragraph: the unit of cost, whom with, and where they come from."""
    best, of = comparison.settings
    seeds = listed([str(seed) for seed in comparison.seeds])
    text = f"Medians over {'seeds' if len(comparison.seeds) > 1 else 'seed'} {seeds}. "
    text += (
        "Cost is counted in plain epochs, those of SGD or AdaDelta: a step is a forward and a backward pass, which "
        "counts as two more, and a trial is another forward. Between recorded epochs the logarithm of a value is taken "
        "to be on a straight line over the cost; nothing is guessed beyond them."
    )
    if best:
        text += f" The best tenth of SGD's settings are {best} of {of}, chosen anew at each batch size and cost."
    if comparison.borrowed:
        names = {"adadelta": "AdaDelta", "sgd": "SGD", "paper": "the paper's algorithm"}
        who = listed([names[key] for key in comparison.borrowed])
        text += f" {who[0].upper()}{who[1:]} were trained in the paper's study."
    return text + _lacking(comparison)


def _lacking(comparison: Comparison) -> str:
    """Which runs have not been trained to the end, if there are any."""
    by_end: dict[tuple[int, int], list[str]] = {}
    for (name, size), last in comparison.unfinished.items():
        by_end.setdefault((size, last), []).append(f"`{name}`")
    parts = [f"{listed(names)} at batch {size} (to epoch {last})" for (size, last), names in by_end.items()]
    return f" Not trained to the end yet: {'; '.join(parts)}." if parts else ""


def findings_text(found: Sequence[Finding]) -> str:
    """A line for each, by group, as Markdown."""
    lines: list[str] = []
    for group, heading in GROUPS.items():
        some = [finding for finding in found if finding.group == group]
        if some:
            lines += [f"**{heading}**", "", *(f"- `{finding.variant}`: {finding.sentence}" for finding in some), ""]
    return "\n".join(lines).strip()


def markdown_text(comparison: Comparison) -> str:
    """`beyond-the-paper.md`: all of it."""
    verdict = prize(comparison)
    parts = [
        f"# Beyond the paper: the study {escaped(comparison.name)}",
        escaped(" ".join(verdict.sentences())),
        escaped(method(comparison)),
        "## Findings",
        findings_text(findings(comparison)),
        "## Numbers",
        table_text(variant_grid(comparison), left=2),
        *(table_text(objective_grid(comparison, cost)) for cost in comparison.moments),
        table_text(error_grid(comparison, comparison.moments[-1])),
    ]
    if not verdict.lacking:
        parts.append(table_text(prize_grid(verdict), left=4))
    parts.append("## Epoch by epoch, whatever an epoch costs")
    for group, families in in_groups(comparison).items():
        parts.append(table_text(epoch_grid(comparison, families, f"{GROUPS[group]}: objective and test error")))
    return "\n\n".join(part.strip() for part in parts) + "\n"
