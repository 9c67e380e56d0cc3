"""Write a report into a folder: benchmark.md, benchmark.html, and a figure for each workload and for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from hotswap.bench.report.figures import draw_overview, draw_profile, draw_workload
from hotswap.bench.report.section import section_data
from hotswap.bench.report.text import report_text
from hotswap.bench.runs import Result
from hotswap.bench.scores import reported, scores
from hotswap.errors import StudyError
from hotswap.files import replacing, write_text
from hotswap.report.figures.style import save
from hotswap.report.page import render_benchmark

__all__ = ["write_report"]


def write_report(
    results: Mapping[str, Result], folder: Path, done: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write what the results allow, and return what was written; `done` is told each file's name.

    Figures that an earlier report left and that these results do not allow are removed.

    Raises:
        StudyError: The folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figures = _figures(results)
        written = []
        for name, figure in figures.items():
            for ending in ("png", "svg"):
                with replacing(folder / f"{name}.{ending}") as part:
                    save(figure, part)
                written.append(folder / f"{name}.{ending}")
                done(written[-1].name)
        write_text(folder / "benchmark.md", report_text(results, list(figures)))
        write_text(folder / "benchmark.html", render_benchmark(section_data(results)))
        for old in (*folder.glob("workload-*.*"), *folder.glob("overview.*"), *folder.glob("profile.*")):
            if old not in written and old.suffix in {".png", ".svg"}:
                old.unlink()
    except OSError as error:
        raise StudyError(
            f"The report cannot be written to {folder} ({error.strerror}); choose another --out."
        ) from error
    return [folder / "benchmark.html", folder / "benchmark.md", *written]


def _figures(results: Mapping[str, Result]) -> dict[str, Figure]:
    runs, found = reported(results), scores(results)
    figures: dict[str, Figure | None] = {"overview": draw_overview(found), "profile": draw_profile(found)}
    for workload in sorted({key[0] for key in runs}):
        figures[f"workload-{workload}"] = draw_workload(workload, runs)
    return {name: figure for name, figure in figures.items() if figure is not None}
