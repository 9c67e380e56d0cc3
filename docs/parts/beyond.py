"""The study of extensions, as Markdown and pictures: what is varied, and, once it was run, what came of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from measured import ROOT, table

from hotswap.errors import StudyError
from hotswap.report.extensions import (
    GROUPS,
    Comparison,
    changes,
    compare,
    confirmed,
    findings,
    group_of,
    prize,
)
from hotswap.report.extensions.tables import (
    epoch_grid,
    error_grid,
    in_groups,
    method,
    objective_grid,
    prize_grid,
    variant_grid,
)
from hotswap.report.extensions.verdict import DECIDING
from hotswap.report.figures.style import save
from hotswap.report.origin import origin_of
from hotswap.report.results import Results, load_results
from hotswap.report.tables import Grid, table_text
from hotswap.report.write import beyond_figures
from hotswap.studies import CONFIRMATION, EXTENSIONS, HotSwapFamily

PICTURES = ROOT / "docs" / "pictures"
PRESET = "adam_05_armijo"
"""The family that `hotswap.presets.adam` is."""
NOT_YET = "The study has not been run yet, so there is nothing to tell."


@cache
def results(name: str) -> Results | None:
    """The results of a study in the repository; None while there are none."""
    try:
        return load_results(ROOT / "results" / name)
    except StudyError:
        return None


@cache
def compared(found: Results) -> Comparison:
    """Beside rivals from the paper's study."""
    comparison = compare(found, results("paper"))
    assert comparison is not None, "the study has no variants of hot swapping"
    return comparison


def varied() -> str:
    """What each family of the study changes, by group; known before it was run."""
    families = [f for f in (*EXTENSIONS.families, *EXTENSIONS.set_aside) if isinstance(f, HotSwapFamily)]
    paper = families[0]
    rows = [
        (title, f"`{family.name}`", changes(family, paper))
        for group, title in GROUPS.items()
        for family in families[1:]
        if group_of(family, paper) == group
    ]
    merged = [(row[0] if at == 0 or rows[at - 1][0] != row[0] else "", *row[1:]) for at, row in enumerate(rows)]
    return table(("", "variant", "with"), merged, left=3)


def came_of_it() -> str:
    """Everything that was measured, or a sentence."""
    first, second = results(EXTENSIONS.name), results(CONFIRMATION.name)
    return NOT_YET if first is None else section(first, second)


def section(first: Results, second: Results | None) -> str:
    """The prize, the findings with their figures, and the tables."""
    comparison = compared(first)
    verdict = prize(comparison)
    parts = [
        "### Is one ahead of all?",
        " ".join(verdict.sentences()),
        *_again(comparison, second),
        table_text(prize_grid(verdict), left=4),
        "### In a few numbers each",
        table_text(variant_grid(comparison), left=2),
        "### At equal cost",
        "![Objective of every variant over that of the paper's algorithm, by batch size](pictures/beyond-ratios.png)",
        method(comparison),
        *(table_text(objective_grid(comparison, cost)) for cost in comparison.moments),
        table_text(error_grid(comparison, comparison.moments[-1])),
        "### One finding each",
        *_findings(comparison),
        "### Epoch by epoch",
        "Training objective and test error, medians over seeds, whatever an epoch costs.",
        *(_folded(epoch_grid(comparison, some, ""), GROUPS[group]) for group, some in in_groups(comparison).items()),
        *(f"*Source: `results/{found.name}`. {origin_of(found).sentence()}*" for found in (first, second) if found),
    ]
    return "\n\n".join(part.strip() for part in parts)


def _folded(grid: Grid, title: str) -> str:
    """A long table behind its title."""
    rows = table(grid.headings, grid.rows, left=1)
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{rows}\n\n</details>'


def _again(comparison: Comparison, second: Results | None) -> list[str]:
    """What the study of confirmation says."""
    if second is None:
        return []
    again = compared(second)
    seeds = ", ".join(map(str, again.seeds))
    said = " ".join(confirmed(prize(comparison), prize(again)))
    return [f"From first weights that had no part in the choice (seeds {seeds}): {said}"]


def _findings(comparison: Comparison) -> list[str]:
    parts = []
    found = findings(comparison)
    for group in in_groups(comparison):
        parts += [
            f"**{GROUPS[group]}**",
            f"![Objective against cost: {GROUPS[group].lower()}](pictures/beyond-{group}.png)",
            "\n".join(f"- `{one.variant}`: {one.sentence}" for one in found if one.group == group),
        ]
    return parts


def draw(folder: Path = PICTURES) -> list[Path]:
    """Draw the figures of the page, if the study was run."""
    found = results(EXTENSIONS.name)
    drawn = []
    for name, figure in (beyond_figures(compared(found)) if found is not None else {}).items():
        if figure is not None:
            save(figure, folder / f"{name}.png")
            drawn.append(folder / f"{name}.png")
    return drawn


def in_short() -> str:
    """One row for each variant, or a sentence."""
    found = results(EXTENSIONS.name)
    return NOT_YET if found is None else table_text(variant_grid(compared(found)), left=2)


def preset() -> str:
    """The objectives of `hotswap.presets.adam` and of its rivals, by batch size; or a sentence."""
    found, again = results(EXTENSIONS.name), results(CONFIRMATION.name)
    if found is None or again is None:
        return NOT_YET
    first, second = compared(found), compared(again)
    shown = [(rival.whole, first, rival.key) for rival in DECIDING]
    seeds = (f"{study.seeds[0]} to {study.seeds[-1]}" for study in (first, second))
    shown += [(f"`presets.adam`, seeds {of}", study, PRESET) for of, study in zip(seeds, (first, second), strict=True)]
    rows = []
    for cost in first.moments:
        for at, (label, study, who) in enumerate(shown):
            cells = (f"{study.value(who, size, cost):.1e}" for size in first.batch_sizes)
            rows.append((str(cost) if at == 0 else "", label, *cells))
    return table(("plain epochs", "", *(f"batch {size}" for size in first.batch_sizes)), rows, left=2)


def preset_lead() -> str:
    """By how much the preset is ahead where it is least so, in both studies."""
    found = [study for study in map(results, (EXTENSIONS.name, CONFIRMATION.name)) if study is not None]
    leads = [one.worst.lead for study in found for one in prize(compared(study)).standings if one.variant == PRESET]
    return f"{min(leads):.1f}" if leads else "an unknown factor"


BLOCKS: dict[str, Callable[[], str]] = {
    "preset": preset,
    "preset lead": preset_lead,
    "extensions": varied,
    "extensions results": came_of_it,
    "extensions in short": in_short,
}
