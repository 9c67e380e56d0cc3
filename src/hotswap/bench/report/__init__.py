"""The report of a benchmark: tables in Markdown, figures, and a page or a section of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hotswap.bench.report.figures import draw_overview, draw_profile, draw_workload
from hotswap.bench.report.section import section_data
from hotswap.bench.report.text import report_text
from hotswap.bench.runs import Result
from hotswap.bench.scores import reported, scores
from hotswap.report.page import render_benchmark
from hotswap.report.write import Content, write_files

__all__ = ["section_data", "write_report"]


def write_report(
    results: Mapping[str, Result], folder: Path, done: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write what the results allow, and return what was written; `done` is told each file's name.

    Figures that an earlier report left and that these results do not allow are removed.

    Raises:
        StudyError: The folder cannot be written to.
    """
    names = ("workload-*", "overview", "profile")
    old = [path.name for name in names for ending in ("png", "svg") for path in folder.glob(f"{name}.{ending}")]
    return write_files(_contents(results), folder, old, done)


def _contents(results: Mapping[str, Result]) -> Iterator[tuple[str, Content]]:
    runs, found = reported(results), scores(results)
    figures = {"overview": draw_overview(found), "profile": draw_profile(found)}
    for workload in sorted({key[0] for key in runs}):
        figures[f"workload-{workload}"] = draw_workload(workload, runs)
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    yield "benchmark.html", render_benchmark(section_data(results))
    yield "benchmark.md", report_text(results, list(drawn))
    yield from drawn.items()
