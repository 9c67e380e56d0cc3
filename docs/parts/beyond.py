"""Studies beside the paper's: variants of hot swapping, vSGD, and the search of the paper's prose, with pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pandas as pd
from matplotlib.figure import Figure
from measured import FORMS, results, source, table

from hotswap.report.beyond import (
    DECIDING,
    in_groups,
    method,
    prize,
    prize_grid,
    variant_grid,
)
from hotswap.report.comparison import PASSES, Comparison, compare, tenth
from hotswap.report.results import Results
from hotswap.report.summaries import settings_among
from hotswap.report.tables import markdown
from hotswap.report.variants import GROUPS
from hotswap.report.write import beyond_figures
from hotswap.studies import CONFIRMATION, EXTENSIONS

PRESET = "adam_05_armijo"
"""The family that `hotswap.presets.adam` is."""


@cache
def compared(name: str) -> Comparison:
    """A study beside rivals from the paper's study."""
    found = compare(results(name), results("paper"))
    assert found is not None, f"{name} has no variants of hot swapping"
    return found


def section() -> str:
    """The prize, every variant in a row, and the figures."""
    comparison, again = compared(EXTENSIONS.name), compared(CONFIRMATION.name)
    verdict = prize(comparison)
    seeds = ", ".join(map(str, again.seeds))
    parts = [
        "### Is one ahead of all?",
        verdict.sentence(),
        markdown(prize_grid(verdict)),
        f"From first weights that had no part in the choice (seeds {seeds}):",
        markdown(prize_grid(prize(again))._replace(title="")),
        "### In a few numbers each",
        markdown(variant_grid(comparison)),
        "### Over cost",
        "![Objective of every variant over that of the paper's algorithm, by batch size](pictures/beyond-ratios.png)",
        method(comparison),
        *(
            f"![{GROUPS[group]}: objective against cost](pictures/beyond-{group}.png)"
            for group in in_groups(comparison)
        ),
    ]
    parts += [source(name) for name in (EXTENSIONS.name, CONFIRMATION.name)]
    return "\n\n".join(part.strip() for part in parts)


def figures() -> dict[str, Figure | None]:
    """The figures of the page, by the names of their files."""
    return {f"{name}.png": figure for name, figure in beyond_figures(compared(EXTENSIONS.name)).items()}


def preset() -> str:
    """The objectives of `hotswap.presets.adam` and of its rivals, by batch size."""
    studies = [compared(name) for name in (EXTENSIONS.name, CONFIRMATION.name)]
    shown = [(rival.whole, studies[0], rival.key) for rival in DECIDING]
    shown += [(f"`presets.adam`, seeds {one.seeds[0]} to {one.seeds[-1]}", one, PRESET) for one in studies]
    sizes = studies[0].batch_sizes
    rows = [
        (str(cost), label, *(f"{study.value(who, size, cost):.1e}" for size in sizes))
        for cost in studies[0].moments
        for label, study, who in shown
    ]
    return table(("plain epochs", "", *(f"batch {size}" for size in sizes)), rows, left=2)


def preset_lead() -> str:
    """By how much the preset is ahead where it is least so, in both studies."""
    found = [prize(compared(name)).of(PRESET) for name in (EXTENSIONS.name, CONFIRMATION.name)]
    return f"{min(standing.worst.lead for standing in found if standing is not None):.1f}"


def first_decrease() -> str:
    """Both searches at equal cost, and their trials."""
    found = compared("first_decrease")
    searches = {"paper": "`Backtracking()`", "first_decrease": "`FirstDecrease()`"}
    searches["first_headroom"] = "`FirstDecrease(headroom=1)`"
    rows = []
    sizes = found.batch_sizes
    for who, title in searches.items():
        for cost in found.moments:
            cells = (f"{found.value(who, size, cost):.1e}" for size in sizes)
            rows.append((title, f"objective at the cost of {cost} plain epochs", *cells))
        rows.append((title, "trials per step", *(f"{found.trials(who, size):.2f}" for size in sizes)))
    shown = table(("search", "", *(f"batch {size}" for size in sizes)), rows, left=2)
    return f"{shown}\n\n{source('first_decrease')}"


def vsgd() -> str:
    """vSGD after as many epochs as the others, early and late; the lowest values are bold."""
    ours, theirs, parts = results("cited"), results("paper"), []
    for epochs in (50, ours.planned_epochs):
        rows = _after(epochs, ours, theirs)
        medians = {who: found.groupby("batch_size")[list(FORMS)].median() for who, found in rows.items()}
        lowest = pd.concat(medians.values()).groupby(level=0).min()
        cells = [
            (who, *(_marked(table.loc[size], lowest.loc[size]) for size in lowest.index), _cost(rows[who]))
            for who, table in medians.items()
        ]
        title = f"**{epochs} epochs: test error and training objective, medians over seeds; bold, the lowest**"
        heads = ("", *(f"batch {size}" for size in lowest.index), "cost of an epoch")
        parts += [title, table(heads, cells)]
    return "\n\n".join([*parts, source("cited")])


def _after(epochs: int, ours: Results, theirs: Results) -> dict[str, pd.DataFrame]:
    """The rows of each method after so many epochs; of SGD, one row a setting."""
    mine, its = (found.metrics[found.metrics["epoch"] == epochs] for found in (ours, theirs))
    sgd = its[its["algorithm"] == "sgd"]
    settings = sgd.groupby(settings_among(sgd), dropna=False)[list(FORMS)].median().reset_index()
    ranked = settings.sort_values("train_nll").groupby("batch_size")
    return {
        "vSGD": mine,
        "the paper's algorithm": its[its["algorithm"] == "ducb"],
        "AdaDelta": its[its["algorithm"] == "adadelta"],
        "the median of the best tenth of SGD's settings": ranked.head(tenth(len(settings) // ranked.ngroups)),
        "the best of SGD's settings": ranked.head(1),
    }


def _marked(mine: pd.Series, lowest: pd.Series) -> str:
    texts = {name: text(mine[name]) for name, text in FORMS.items()}
    return ", ".join(f"**{texts[name]}**" if mine[name] == lowest[name] else texts[name] for name in FORMS)


def _cost(rows: pd.DataFrame) -> str:
    """Forward passes over those of plain epochs; of the paper's algorithm, by its trials in that epoch."""
    if "passes" in rows and rows["passes"].notna().all():
        return f"{(rows['passes'] / (PASSES * rows['steps'])).median():.2f}"
    return f"{1 + (rows['trials'].median() if 'trials' in rows else 0.0) / PASSES:.2f}"


BLOCKS: dict[str, Callable[[], str]] = {
    "preset": preset,
    "preset lead": preset_lead,
    "extensions results": section,
    "vsgd": vsgd,
    "first decrease": first_decrease,
}
