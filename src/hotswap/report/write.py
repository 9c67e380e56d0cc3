"""Write a report into a folder: figures, tables, claims, the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hotswap.errors import StudyError
from hotswap.files import replacing
from hotswap.report.claims import Claim, judge, worth_showing
from hotswap.report.extensions import GROUPS, Comparison, comparison_of, prize
from hotswap.report.extensions.tables import in_groups, markdown_text
from hotswap.report.figures import (
    draw_choices,
    draw_figure_1,
    draw_figure_2,
    draw_objective_and_cost,
    draw_ratios,
    draw_tuning,
)
from hotswap.report.figures.style import save
from hotswap.report.markdown import escaped, quoted
from hotswap.report.origin import origin_of
from hotswap.report.page import render_page
from hotswap.report.page.data import page_data
from hotswap.report.results import Results
from hotswap.report.tables import Grid, claims_markdown, latex, markdown, timing_grid
from hotswap.report.tuning import MEASURES, Tuning, price_of_tuning

__all__ = ["BEYOND", "FILES", "beyond_figures", "tables_of", "tuning_of", "write_report"]

FIGURES = ("figure-1", "figure-2", "choices", "tuning")
FILES = (
    *(f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")),
    *(f"table-{number}.{ending}" for number in (1, 2) for ending in ("md", "tex")),
    "claims.md",
    "index.html",
)
"""What a report of the paper's whole study consists of."""
BEYOND = (
    *(f"beyond-{name}.{ending}" for name in ("ratios", *GROUPS) for ending in ("png", "svg")),
    "beyond-the-paper.md",
)
"""What a study of variants of hot swapping has beside that, or instead of the claims."""


def write_report(
    results: Results,
    folder: Path,
    done: Callable[[str], None] = lambda _: None,
    benchmark: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write what the results allow, and return what was written; `done` is told each file's name.

    benchmark: a section of the page on other methods, as `hotswap.bench.report.section_data` makes it.

    A file that an earlier report left and that these results do not allow is removed, so that nothing old stands
    beside the new.

    Raises:
        StudyError: The folder cannot be written to.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in _writers(results, benchmark):
            with replacing(folder / name) as part:
                write(part)
            written.append(folder / name)
            done(name)
        for name in {*FILES, *BEYOND} - {path.name for path in written}:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StudyError(
            f"The report cannot be written to {folder} ({error.strerror}); choose another --out."
        ) from error
    return written


def tables_of(results: Results) -> list[Grid]:
    """Tables 1 and 2, where there are timings."""
    if results.timing.empty:
        return []
    return [timing_grid(results.timing, unit, results.looks) for unit in ("milliseconds", "seconds")]


def tuning_of(results: Results) -> list[Tuning]:
    """The price of tuning by both measures, where there are runs that were tuned and runs that needed no tuning."""
    found = (
        price_of_tuning(results.metrics, measure, results.looks, results.searches.get(measure)) for measure in MEASURES
    )
    return [curve for curve in found if curve is not None]


def _writers(results: Results, benchmark: Mapping[str, Any] | None) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Each file's name, and what writes it."""
    claims = judge(results) if worth_showing(results) else []
    tuning, tables, beyond = tuning_of(results), tables_of(results), comparison_of(results)
    figures: dict[str, Figure | None] = {
        "figure-1": draw_figure_1(results.metrics, results.looks),
        "figure-2": draw_figure_2(results.curves, results.looks),
        "choices": draw_choices(results),
        "tuning": draw_tuning(tuning, results.looks),
        **(beyond_figures(beyond) if beyond is not None else {}),
    }
    for name, figure in figures.items():
        if figure is not None:
            for ending in ("png", "svg"):
                yield f"{name}.{ending}", partial(save, figure)
    for number, grid in enumerate(tables, start=1):
        yield f"table-{number}.md", _text(markdown(grid))
        yield f"table-{number}.tex", _text(latex(grid))
    if beyond is not None:
        yield "beyond-the-paper.md", _text(f"{markdown_text(beyond)}\n{_about(results)}\n")
    if claims:
        yield "claims.md", _text(_claims(results, claims))
    page = page_data(results, claims, tuning, tables, origin_of(results), beyond, benchmark)
    yield "index.html", _text(render_page(page))


def beyond_figures(comparison: Comparison) -> dict[str, Figure | None]:
    """By the name of the file: the map of ratios, and the curves of each group of variants."""
    return {
        "beyond-ratios": draw_ratios(comparison, prize(comparison)),
        **{
            f"beyond-{group}": draw_objective_and_cost(comparison, [family.name for family in families])
            for group, families in in_groups(comparison).items()
        },
    }


def _text(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


def _claims(results: Results, claims: list[Claim]) -> str:
    """The claims, what made the numbers, and what is missing."""
    lines = [f"{escaped(results.caution)}\n"] if results.caution else []
    return "\n".join([*lines, claims_markdown(claims), _about(results)]) + "\n"


def _about(results: Results) -> str:
    """What made the numbers, and what is missing."""
    lines = [quoted(origin_of(results).sentence())]
    if results.missing:
        lines += ["", "What is missing:", "", *(f"- {escaped(sentence)}" for sentence in results.missing)]
    return "\n".join(lines)
