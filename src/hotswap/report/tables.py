"""Tables 1 and 2 with the paper's numbers beside ours, and the claims: Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import pandas as pd

from hotswap.report.claims import Claim
from hotswap.report.looks import Looks
from hotswap.report.markdown import escaped
from hotswap.studies.paper import TABLE_1, TABLE_2

__all__ = ["Grid", "claims_markdown", "latex", "markdown", "table_text", "timing_grid"]

TimeUnit = Literal["milliseconds", "seconds"]


class Grid(NamedTuple):
    """A table ready to be written: a heading per column, then rows of text."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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
    return Grid(f"{name}; in brackets the paper's, on its hardware", tuple(headings), tuple(rows))


BASE = ("sgd", 0)
"""What the paper compares with: the algorithm, and 0 because its time does not depend on the epoch."""


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


def markdown(grid: Grid) -> str:
    """A table for Markdown, its title above."""
    return table_text(grid, left=0)


def table_text(grid: Grid, left: int = 1) -> str:
    """The same where the first `left` columns hold words."""
    marks = ["---"] * left + ["---:"] * (len(grid.headings) - left)
    lines = [f"**{escaped(grid.title)}**", "", _row(grid.headings), _row(marks), *(_row(row) for row in grid.rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


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
        rf"  \caption{{{_escaped(title)}.}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_escaped(cell) for cell in cells) + r" \\"


def _escaped(text: str) -> str:
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


def claims_markdown(claims: Sequence[Claim]) -> str:
    """`claims.md`: a line per claim."""
    headings = ("#", "claim", "paper", "here", "what decides", "verdict")
    rows = [(str(c.number), c.claim, c.paper, c.ours, c.rule, f"**{c.verdict}**" if c.verdict else "—") for c in claims]
    table = [_row(headings), _row(["---:", *["---"] * 5]), *(_row(row) for row in rows)]
    return "\n".join(["# The paper's claims", "", *table]) + "\n"
