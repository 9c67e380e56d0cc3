"""Write a report into a folder: figures, tables, claims, the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hotswap.errors import StudyError
from hotswap.files import replacing
from hotswap.report.beyond import beyond_text, in_groups, prize
from hotswap.report.claims import claims_answer, claims_grid, judge, worth_showing
from hotswap.report.comparison import Comparison, comparison_of
from hotswap.report.figures import (
    draw_choices,
    draw_figure_1,
    draw_figure_2,
    draw_objective_and_cost,
    draw_ratios,
    draw_tuning,
    save,
)
from hotswap.report.origin import origin_of
from hotswap.report.page import render_page
from hotswap.report.page.data import page_data
from hotswap.report.results import Results
from hotswap.report.tables import Grid, escaped, latex, markdown, quoted, timing_grid
from hotswap.report.tuning import MEASURES, Tuning, price_of_tuning
from hotswap.report.variants import GROUPS

__all__ = ["BEYOND", "FILES", "beyond_figures", "tables_of", "tuning_of", "write_files", "write_report"]

ENDINGS = ("png", "svg")
FILES = (
    *(f"{name}.{ending}" for name in ("figure-1", "figure-2", "choices", "tuning") for ending in ENDINGS),
    *(f"table-{number}.{ending}" for number in (1, 2) for ending in ("md", "tex")),
    "claims.md",
    "index.html",
)
"""The files of a report on the paper's whole study."""
BEYOND = (
    *(f"beyond-{name}.{ending}" for name in ("ratios", *GROUPS) for ending in ENDINGS),
    "beyond-the-paper.md",
)
"""The files that a study of variants of hot swapping has beside these, or instead of the claims."""

Content = str | Figure | None


def write_report(
    results: Results,
    folder: Path,
    done: Callable[[str], None] = lambda _: None,
    benchmark: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write what the results allow, and return what was written; `done` is told each file's name.

    benchmark: a section of the page on other methods, as `hotswap.bench.report.section_data` makes it.

    Raises:
        StudyError: The folder cannot be written to.
    """
    return write_files(_contents(results, benchmark), folder, {*FILES, *BEYOND}, done)


def write_files(
    contents: Iterable[tuple[str, Content]], folder: Path, known: Iterable[str], done: Callable[[str], None]
) -> list[Path]:
    """Write texts, and figures as PNG and SVG, by their names; what is None has no file.

    A file among the `known` names that an earlier report left is removed, so that nothing old stands beside the new.

    Raises:
        StudyError: The folder cannot be written to.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents:
            for file in [f"{name}.{ending}" for ending in ENDINGS] if isinstance(content, Figure) else [name]:
                if content is not None:
                    with replacing(folder / file) as part:
                        _write(content, part)
                    written.append(folder / file)
                    done(file)
        for name in {*known} - {path.name for path in written}:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StudyError(
            f"The report cannot be written to {folder} ({error.strerror}); choose another --out."
        ) from error
    return written


def _write(content: str | Figure, path: Path) -> None:
    if isinstance(content, Figure):
        save(content, path)
    else:
        path.write_text(content, encoding="utf-8")


def _contents(results: Results, benchmark: Mapping[str, Any] | None) -> Iterator[tuple[str, Content]]:
    """Each file's name, without its ending for a figure, and what is in it."""
    claims = judge(results) if worth_showing(results) else []
    tuning, tables, beyond = tuning_of(results), tables_of(results), comparison_of(results)
    yield "figure-1", draw_figure_1(results.metrics, results.looks)
    yield "figure-2", draw_figure_2(results.curves, results.looks)
    yield "choices", draw_choices(results)
    yield "tuning", draw_tuning(tuning, results.looks)
    yield from beyond_figures(beyond).items() if beyond is not None else ()
    for number, grid in enumerate(tables, start=1):
        yield f"table-{number}.md", markdown(grid)
        yield f"table-{number}.tex", latex(grid)
    if beyond is not None:
        yield "beyond-the-paper.md", f"{beyond_text(beyond)}\n{_about(results)}\n"
    if claims:
        caution = f"{escaped(results.caution)}\n\n" if results.caution else ""
        answer, table = claims_answer(claims).sentence(), markdown(claims_grid(claims))
        yield "claims.md", f"{caution}# The paper's claims\n\n**{answer}**\n\n{table}\n{_about(results)}\n"
    yield "index.html", render_page(page_data(results, claims, tuning, tables, origin_of(results), beyond, benchmark))


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


def beyond_figures(comparison: Comparison) -> dict[str, Figure | None]:
    """By the name of the file: the map of ratios, and the curves of each group of variants."""
    figures = {"beyond-ratios": draw_ratios(comparison, prize(comparison))}
    for group, families in in_groups(comparison).items():
        figures[f"beyond-{group}"] = draw_objective_and_cost(comparison, [family.name for family in families])
    return figures


def _about(results: Results) -> str:
    """The origin of the numbers, and a list of missing parts."""
    lines = [quoted(origin_of(results).sentence())]
    if results.missing:
        lines += ["", "What is missing:", "", *(f"- {escaped(sentence)}" for sentence in results.missing)]
    return "\n".join(lines)
