"""Beyond the paper: every variant's objective over that of the paper's algorithm, at equal cost, as a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from hotswap.report.extensions.comparison import Comparison
from hotswap.report.extensions.variants import GROUPS, group_of, readable
from hotswap.report.extensions.verdict import Prize
from hotswap.report.figures.style import styled

__all__ = ["draw_ratios", "ratio_rows"]

MOST = 10.0
"""Where colours end; what is further from 1 is told by its number."""
GAP = 2.05
"""From the last row of a group to the first of the next, with room for its heading."""
COLOURS = LinearSegmentedColormap.from_list("lead", ["#00507d", "#5aa6d1", "#f7f7f5", "#ee9a5b", "#a63c00"])
Row = tuple[str, str, str]


def ratio_rows(comparison: Comparison) -> list[Row]:
    """Group, key and label of each row: the other rivals first, then the variants, by group."""
    rivals = [("rivals", rival.key, rival.label) for rival in comparison.present if rival.key != "paper"]
    variants = [(group_of(f, comparison.paper), f.name, readable(f.name)) for f in comparison.others]
    return rivals + sorted(variants, key=lambda row: list(GROUPS).index(row[0]))


def draw_ratios(comparison: Comparison, prize: Prize) -> Figure | None:
    """A map for each moment; None where the paper's algorithm was not trained."""
    rows = ratio_rows(comparison)
    sizes, moments = comparison.batch_sizes, comparison.moments
    found = [
        np.array([[comparison.ratio(key, size, cost) for size in sizes] for _, key, _ in rows]) for cost in moments
    ]
    if not any(np.isfinite(table).any() for table in found):
        return None
    places = _places(rows)
    with styled():
        wide, high = 2.0 + len(moments) * (0.62 * len(sizes) + 0.35), 0.265 * (places[-1] + 1) + 1.6
        figure = Figure(figsize=(max(wide, 5.5), high), layout="constrained")
        row = figure.subplots(1, len(moments), squeeze=False, sharey=True)[0]
        for axes, table, cost in zip(row, found, moments, strict=True):
            picture = _map(axes, table, places, sizes)
            axes.set_title(f"at the cost of {cost} epochs")
            _everyone(axes, rows, places, prize, sizes, cost)
        _names(row[0], rows, places)
        bar = figure.colorbar(
            picture, ax=list(row), location="bottom", shrink=0.75, aspect=45, pad=0.015, extend="both"
        )
        bar.ax.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10]))
        bar.ax.xaxis.set_minor_locator(NullLocator())
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        bar.set_label("objective over that of the paper's algorithm: below 1, blue, is lower\n"
                      "framed: ahead of the paper's algorithm, AdaDelta and SGD's best tenth")  # fmt: skip
        bar.outline.set_visible(False)
    return figure


def _places(rows: Sequence[Row]) -> list[float]:
    """The height of each row, with a gap between groups."""
    places, height = [], 0.0
    for at, row in enumerate(rows):
        height += 0.0 if at == 0 else (1.0 if row[0] == rows[at - 1][0] else GAP)
        places.append(height)
    return places


def _map(axes: Axes, table: NDArray[np.float64], places: Sequence[float], sizes: Sequence[int]) -> Any:
    norm = LogNorm(1 / MOST, MOST)
    for values, height in zip(table, places, strict=True):
        for at, value in enumerate(values):
            axes.add_patch(
                Rectangle(
                    (at - 0.5, height - 0.5), 1, 1, facecolor=_colour(value, norm), edgecolor="white", linewidth=1
                )
            )
            axes.text(at, height, _text(value), ha="center", va="center", fontsize=8, color=_ink(value))
    axes.set(xlim=(-0.5, len(sizes) - 0.5), ylim=(places[-1] + 0.6, places[0] - 0.6))
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("batch size")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    return _scale(norm)


def _scale(norm: LogNorm) -> Any:
    return ScalarMappable(norm, COLOURS)


def _colour(value: float, norm: LogNorm) -> Any:
    if math.isnan(value):
        return "#e4e5e9"
    return COLOURS(norm(min(max(value, 1 / MOST), MOST)))


def _ink(value: float) -> str:
    far = not math.isnan(value) and (value == 0 or abs(math.log10(value)) > 0.62)
    return "white" if far else "#1d2026"


def _text(value: float) -> str:
    """Two digits or so; the sign of infinity for what has diverged, and a dash for what is not known."""
    if math.isnan(value):
        return "–"
    if math.isinf(value) or value == 0:
        return "∞" if value else "0"
    if value >= 9.95:
        return f"{value:.0f}" if value < 999.5 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return (
        f"{value:.1f}"
        if value >= 0.95
        else (f"{value:.2f}" if value >= 0.0095 else f"{value:.0e}".replace("e-0", "e-"))
    )


def _everyone(
    axes: Axes, rows: Sequence[Row], places: Sequence[float], prize: Prize, sizes: Sequence[int], cost: int
) -> None:
    """A frame around each cell in which a variant is ahead of all who decide."""
    for (_, key, _), height in zip(rows, places, strict=True):
        standing = prize.of(key)
        for at, size in enumerate(sizes):
            here = [m.lead for m in standing.margins if (m.batch_size, m.cost) == (size, cost)] if standing else []
            if here and all(lead > 1 for lead in here):
                for colour, width in (("white", 3.4), ("#1d2026", 1.4)):  # to be seen on dark cells as on light ones
                    frame = Rectangle(
                        (at - 0.42, height - 0.4), 0.84, 0.8, fill=False, edgecolor=colour, linewidth=width
                    )
                    axes.add_patch(frame)


def _names(axes: Axes, rows: Sequence[Row], places: Sequence[float]) -> None:
    axes.set_yticks(places, [label for _, _, label in rows], fontsize=8.5)
    seen: set[str] = set()
    for (group, _, _), height in zip(rows, places, strict=True):
        if group not in seen and group in GROUPS:
            axes.text(-0.5, height - 0.95, GROUPS[group], va="center", fontsize=8.5, color="#5c626d", style="italic")
        seen.add(group)
