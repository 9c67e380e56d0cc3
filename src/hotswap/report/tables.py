"""Tables: their cells, and how they are written in Markdown and LaTeX. Tables 1 and 2 have the paper's numbers, too."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import pandas as pd

from hotswap.names import one_line
from hotswap.report.looks import Looks
from hotswap.studies.paper import TABLE_1, TABLE_2

__all__ = ["Grid", "escaped", "latex", "markdown", "quoted", "timing_grid"]

TimeUnit = Literal["milliseconds", "seconds"]

_LAYOUT, _MARKS = re.compile(r"([|\[\]])"), re.compile(r"([\\`*])")


class Grid(NamedTuple):
    """A table ready to be written: a heading per column, then rows of text."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    """The first columns, so many of them, hold words; the others hold numbers."""


def escaped(text: str) -> str:
    """A sentence or cell of our own that may have words of others in it: one line without HTML, links and columns.

    Its code, in backticks, and its emphasis stay.
    """
    return _LAYOUT.sub(r"\\\1", html.escape(one_line(text), quote=False))


def quoted(text: str) -> str:
    """Words of others, such as the reason why a run failed: they read in Markdown as they were written."""
    return escaped(_MARKS.sub(r"\\\1", text))


def markdown(grid: Grid, clean: Callable[[str], str] = escaped) -> str:
    """A table for Markdown, its title above; empty where there are no rows."""
    marks = ["---"] * grid.left + ["---:"] * (len(grid.headings) - grid.left)
    lines = (map(clean, grid.headings), marks, *(map(clean, row) for row in grid.rows))
    title = [f"**{escaped(grid.title)}**", ""] if grid.title else []
    return "\n".join([*title, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n" if grid.rows else ""


def latex(grid: Grid) -> str:
    """The same as a LaTeX table; LaTeX numbers it itself."""
    title = grid.title.partition(". ")[2] or grid.title
    lines = [
        r"% in the preamble: \usepackage{booktabs}",
        r"\begin{table}[ht]",
        r"  \centering\small\setlength{\tabcolsep}{3pt}",
        rf"  \begin{{tabular}}{{{'r' * len(grid.headings)}}}",
        r"  \toprule",
        f"  {_latex_row(grid.headings)}",
        r"  \midrule",
        *(f"  {_latex_row(row)}" for row in grid.rows),
        r"  \bottomrule",
        r"  \end{tabular}",
        rf"  \caption{{{_for_latex(title)}.}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_for_latex(cell) for cell in cells) + r" \\"


def _for_latex(text: str) -> str:
    for plain, tex in (
        ("\\", r"\textbackslash{}"),
        ("&", r"\&"),
        ("%", r"\%"),
        ("_", r"\_"),
        ("#", r"\#"),
        ("–", "--"),
    ):
        text = text.replace(plain, tex)
    return text.replace("×", r"$\times$")


def timing_grid(timing: pd.DataFrame, unit: TimeUnit, looks: Looks | None = None) -> Grid:
    """Table 1 (`milliseconds` per minibatch) or 2 (`seconds` per epoch): ours and, in brackets, the paper's.

    The last columns are what those cost that choose their rate, as a multiple of SGD.
    """
    looks = looks or Looks(timing["algorithm"].unique())
    published = TABLE_1 if unit == "milliseconds" else TABLE_2
    columns = _columns(timing, looks)
    base = columns.index(BASE) if BASE in columns else None
    choosing = [at for at, (algorithm, _) in enumerate(columns) if looks.of(algorithm).chooses]
    heads = [_heading(looks.label_of(algorithm), epoch) for algorithm, epoch in columns]
    headings = ["batch size", *heads, *(f"{heads[at]} / {looks.label_of(BASE[0])}" for at in choosing)]
    rows = []
    for size in sorted(int(size) for size in timing["batch_size"].unique()):
        ours = [_cell(timing, unit, size, column) for column in columns]
        theirs = [published[size].of(*column) if size in published else None for column in columns]
        cells = [_pair(a, b, "#.3g", ".1f") for a, b in zip(ours, theirs, strict=True)]
        cells += [_pair(_over(ours, at, base), _over(theirs, at, base), ".2f", ".2f") for at in choosing]
        rows.append((str(size), *cells))
    name = "Table 1. Milliseconds per minibatch" if unit == "milliseconds" else "Table 2. Seconds per epoch"
    return Grid(f"{name}; in brackets the paper's, on its hardware", tuple(headings), tuple(rows), left=0)


BASE = ("sgd", 0)
"""The column that the paper compares with: an algorithm, and 0 because its time does not depend on the epoch."""


def _columns(timing: pd.DataFrame, looks: Looks) -> list[tuple[str, int]]:
    """Algorithm and epoch of each column, in the order in which algorithms are drawn."""
    found = {(str(row.algorithm), int(row.epoch)) for row in timing.itertuples()}
    order = {algorithm: place for place, algorithm in enumerate(looks)}
    return sorted(found, key=lambda column: (order.get(column[0], len(order)), column))


def _heading(label: str, epoch: int) -> str:
    return f"{label}, epoch {epoch}" if epoch else label


def _cell(timing: pd.DataFrame, unit: TimeUnit, size: int, column: tuple[str, int]) -> float | None:
    algorithm, epoch = column
    here = timing[(timing["batch_size"] == size) & (timing["algorithm"] == algorithm) & (timing["epoch"] == epoch)]
    return None if here.empty else float(here[unit].iloc[0])


def _over(values: Sequence[float | None], at: int, base: int | None) -> float | None:
    value, below = values[at], None if base is None else values[base]
    return None if value is None or not below else value / below


def _pair(ours: float | None, theirs: float | None, fine: str, coarse: str) -> str:
    mine = "–" if ours is None else format(ours, fine)
    return mine if theirs is None else f"{mine} ({format(theirs, coarse)})"
