"""Tables 1 and 2 with the paper's numbers beside ours, and the claims: Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pandas as pd

from hotswap.report.claims import Claim
from hotswap.report.published import MILLISECONDS, SECONDS, TABLE_COLUMNS
from hotswap.report.summaries import ALGORITHM_NAMES

__all__ = ["Grid", "claims_markdown", "latex", "markdown", "timing_grid"]

Unit = Literal["milliseconds", "seconds"]


class Grid(NamedTuple):
    """A table ready to be written: a heading per column, then rows of text."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def timing_grid(timing: pd.DataFrame, unit: Unit) -> Grid:
    """Table 1 (`milliseconds` per minibatch) or 2 (`seconds` per epoch): ours, the paper's in brackets, DUCB/SGD."""
    published = MILLISECONDS if unit == "milliseconds" else SECONDS
    columns = _columns(timing)
    headings = ["batch size", *(_heading(algorithm, epoch) for algorithm, epoch in columns)]
    headings += [f"{_heading(a, e)} / SGD" for a, e in columns if a == "ducb"]
    rows = []
    for size in sorted(int(size) for size in timing["batch_size"].unique()):
        ours = [_cell(timing, unit, size, column) for column in columns]
        theirs = [_published(published, size, column) for column in columns]
        base = columns.index(("sgd", 0)) if ("sgd", 0) in columns else None
        cells = [_pair(a, b, "#.3g", ".1f") for a, b in zip(ours, theirs, strict=True)]
        for at, (algorithm, _) in enumerate(columns):
            if algorithm == "ducb":
                both = (_over(ours, at, base), _over(theirs, at, base))
                cells.append(_pair(*both, ".2f", ".2f"))
        rows.append((str(size), *cells))
    name = "Table 1. Milliseconds per minibatch" if unit == "milliseconds" else "Table 2. Seconds per epoch"
    return Grid(f"{name}; in brackets the paper's, on its hardware", tuple(headings), tuple(rows))


def _columns(timing: pd.DataFrame) -> list[tuple[str, int]]:
    """Those of the paper that were timed, then any other."""
    found = {(str(row.algorithm), int(row.epoch)) for row in timing.itertuples()}
    order = {algorithm: place for place, algorithm in enumerate(("sgd", "adadelta", "ducb"))}
    return sorted(found, key=lambda column: (order.get(column[0], len(order)), column[1]))


def _heading(algorithm: str, epoch: int) -> str:
    name = ALGORITHM_NAMES.get(algorithm, algorithm)
    return f"{name}, epoch {epoch}" if epoch else name


def _cell(timing: pd.DataFrame, unit: Unit, size: int, column: tuple[str, int]) -> float | None:
    algorithm, epoch = column
    here = timing[(timing["batch_size"] == size) & (timing["algorithm"] == algorithm) & (timing["epoch"] == epoch)]
    return None if here.empty else float(here[unit].iloc[0])


def _published(table: Mapping[int, tuple[float, ...]], size: int, column: tuple[str, int]) -> float | None:
    if size not in table or column not in TABLE_COLUMNS:
        return None
    return table[size][TABLE_COLUMNS.index(column)]


def _over(values: Sequence[float | None], at: int, base: int | None) -> float | None:
    value, below = values[at], None if base is None else values[base]
    return None if value is None or not below else value / below


def _pair(ours: float | None, theirs: float | None, fine: str, coarse: str) -> str:
    mine = "–" if ours is None else format(ours, fine)
    return mine if theirs is None else f"{mine} ({format(theirs, coarse)})"


def markdown(grid: Grid) -> str:
    """A table for Markdown, its title above."""
    lines = [
        f"**{grid.title}**",
        "",
        _row(grid.headings),
        _row(["---:"] * len(grid.headings)),
        *(_row(row) for row in grid.rows),
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


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
