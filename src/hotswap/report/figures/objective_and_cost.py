"""Beyond the paper: the training objective against cost, variants that belong together beside their rivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hotswap.report.extensions.comparison import Comparison
from hotswap.report.extensions.variants import readable
from hotswap.report.figures.style import LINES, MARKERS, styled
from hotswap.report.looks import PALETTE
from hotswap.studies.algorithms import ALGORITHMS

__all__ = ["draw_objective_and_cost"]

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
    axes.set_xticks(sorted({*free, *map(float, moments)}))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


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
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _legend(panels: Sequence[Axes]) -> tuple[list[Any], list[str]]:
    """Each name once, whichever panels it is in: rivals first, then the variants in their order."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
