"""Beyond the paper: the training objective against cost, and every variant's objective over that of the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from hotswap.report.beyond import Prize
from hotswap.report.comparison import Comparison
from hotswap.report.figures.style import LINES, MARKERS, set_ticks, styled
from hotswap.report.looks import PALETTE
from hotswap.report.variants import GROUPS, group_of, readable
from hotswap.studies.algorithms import ALGORITHMS

__all__ = ["draw_objective_and_cost", "draw_ratios", "ratio_rows"]

BAND = "#8a8f98"
COLUMNS = 3


def draw_objective_and_cost(comparison: Comparison, names: Sequence[str]) -> Figure | None:
    """One panel for each batch size, and one for the names; None where no variant has a finite objective."""
    known = np.isfinite(comparison.curves[["cost", "train_nll"]]).all(axis=1)
    curves = comparison.curves[known & (comparison.curves["train_nll"] > 0)]
    there = set(curves.index.get_level_values("who"))
    names = [name for name in names if name in there]
    if not names:
        return None
    sizes = comparison.batch_sizes
    columns = min(COLUMNS, len(sizes) + 1)
    rows = math.ceil((len(sizes) + 1) / columns)
    with styled():
        figure = Figure(figsize=(3.5 * columns, 3.0 * rows), layout="constrained")
        grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
        for axes, size in zip(grid, sizes, strict=False):
            _panel(axes, comparison, curves, names, size)
            axes.set_title(f"batch {size}")
        for at, axes in enumerate(grid[: len(sizes)]):
            axes.tick_params(labelbottom=True)
            if at % columns == 0:
                axes.set_ylabel("training objective")
            if at + columns >= len(sizes):
                axes.set_xlabel("cost in plain epochs")
        for axes in grid[len(sizes) :]:
            axes.set_axis_off()
        handles, labels = _legend(grid[: len(sizes)])
        grid[len(sizes)].legend(handles, labels, loc="center left", fontsize=9, labelspacing=0.7, handlelength=3.2)
    return figure


def _panel(axes: Axes, comparison: Comparison, curves: pd.DataFrame, names: Sequence[str], size: int) -> None:
    for cost in comparison.moments:
        axes.axvline(cost, color="#b5b9c0", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    if (band := _part(curves, "sgd tenth", size)) is not None:
        axes.fill_between(band["cost"], band["low"], band["high"], color=BAND, alpha=0.28, linewidth=0, zorder=1)
        label = "SGD: the best tenth, and its median"
        axes.plot(band["cost"], band["train_nll"], color=BAND, linewidth=1.4, label=label, zorder=2)
    if (line := _part(curves, "adadelta", size)) is not None:
        colour = ALGORITHMS["adadelta"].look.colour
        axes.plot(line["cost"], line["train_nll"], color=colour, linestyle=LINES[1], label="AdaDelta", zorder=3)
    if (line := _part(curves, "paper", size)) is not None:
        colour = ALGORITHMS["ducb"].look.colour
        axes.plot(line["cost"], line["train_nll"], color=colour, linewidth=2.6, label="the paper's algorithm", zorder=4)
    for place, name in enumerate(names):
        line = _part(curves, name, size)
        if line is not None and not (comparison.paper is not None and name == comparison.paper.name):
            axes.plot(line["cost"], line["train_nll"], label=readable(name), zorder=5, **_style(place, len(names)))
    axes.set(xscale="log", yscale="log", xlim=(0.95, 1.25 * comparison.moments[-1]))
    _ticks(axes, comparison.moments)
    _heights(axes)


def _part(curves: pd.DataFrame, who: str, size: int) -> pd.DataFrame | None:
    key = (who, size)
    return curves.loc[key].sort_values("cost") if key in curves.index.droplevel("epoch") else None


def _style(place: int, of: int) -> dict[str, Any]:
    """A line apart from the others also where there are no colours: by its marks, which lie at different places."""
    marker = tuple(MARKERS.values())[place % len(MARKERS)]
    return {
        "color": PALETTE[place % len(PALETTE)][0],
        "linewidth": 1.3,
        "marker": marker,
        "markersize": 4,
        "markerfacecolor": PALETTE[place % len(PALETTE)][0] if (place // len(MARKERS)) % 2 == 0 else "white",
        "markevery": (0.18 * place / of, 0.18),
    }


def _ticks(axes: Axes, moments: Sequence[int]) -> None:
    """The moments at which all are compared, and the powers of ten that do not touch them."""
    tens = [10.0**power for power in range(int(np.log10(moments[-1])) + 1)]
    free = [ten for ten in tens if all(abs(np.log10(ten / cost)) > 0.25 for cost in moments)]
    set_ticks(axes.xaxis, sorted({*free, *map(float, moments)}))


def _heights(axes: Axes) -> None:
    """Powers of ten on the upright axis, a few of them; what is beyond the cost that is shown does not stretch it."""
    right = axes.get_xlim()[1]
    seen = [
        np.asarray(line.get_ydata(), dtype=float)[np.asarray(line.get_xdata(), dtype=float) <= right]
        for line in axes.lines
        if len(np.asarray(line.get_xdata())) > 2
    ]
    values = np.concatenate([part for part in seen if len(part)] or [np.array([0.1, 1.0])])
    axes.set_ylim(values.min() / 1.6, values.max() * 1.6)
    few = values.max() < 100 * values.min()  # then powers of ten alone would be too few
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    if few:
        axes.yaxis.set_major_formatter("{x:.3g}")


def _legend(panels: Sequence[Axes]) -> tuple[list[Any], list[str]]:
    """Each name once, whichever panels it is in: rivals first, then the variants in their order."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


# --- a map of ratios --------------------------------------------------------------------------------------------------

MOST = 10.0
"""The ratio at which colours end; a ratio further from 1 has the last colour, and its number tells it."""
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
        _row_names(row[0], rows, places)
        bar = figure.colorbar(
            picture, ax=list(row), location="bottom", shrink=0.75, aspect=45, pad=0.015, extend="both"
        )
        set_ticks(bar.ax.xaxis, [0.1, 0.2, 0.5, 1, 2, 5, 10])
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
            cell = Rectangle(
                (at - 0.5, height - 0.5), 1, 1, facecolor=_colour(value, norm), edgecolor="white", linewidth=1
            )
            axes.add_patch(cell)
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
    standings = [prize.of(key) for _, key, _ in rows]
    for standing, height in zip(standings, places, strict=True):
        for at in [at for at, size in enumerate(sizes) if standing is not None and standing.first(size, cost)]:
            for colour, width in (("white", 3.4), ("#1d2026", 1.4)):  # to be seen on dark cells as on light ones
                box = Rectangle((at - 0.42, height - 0.4), 0.84, 0.8, fill=False, edgecolor=colour, linewidth=width)
                axes.add_patch(box)


def _row_names(axes: Axes, rows: Sequence[Row], places: Sequence[float]) -> None:
    axes.set_yticks(places, [label for _, _, label in rows], fontsize=8.5)
    seen: set[str] = set()
    for (group, _, _), height in zip(rows, places, strict=True):
        if group not in seen and group in GROUPS:
            axes.text(-0.5, height - 0.95, GROUPS[group], va="center", fontsize=8.5, color="#5c626d", style="italic")
        seen.add(group)
