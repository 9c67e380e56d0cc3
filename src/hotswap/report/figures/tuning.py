"""The price of tuning: the expected best of k settings of SGD, against one run of DUCB."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from hotswap.report.figures.style import LOOKS, styled
from hotswap.report.tuning import Tuning

__all__ = ["draw_tuning", "spread"]

NAMES = {"train_nll": "training objective", "test_error": "test error"}


def draw_tuning(curves: Sequence[Tuning]) -> Figure | None:
    """None where SGD or DUCB is missing."""
    if not curves:
        return None
    with styled():
        figure = Figure(figsize=(6.2 * len(curves), 4.2))
        row = figure.subplots(1, len(curves), squeeze=False)
        for axes, curve in zip(row[0], curves, strict=True):
            _panel(axes, curve)
        figure.tight_layout()
    return figure


def _panel(axes: Axes, curve: Tuning) -> None:
    tried = np.arange(1, len(curve.expected) + 1)
    sgd, ducb = LOOKS["sgd"], LOOKS["ducb"]
    axes.fill_between(tried, curve.low, curve.high, color=sgd.colour, alpha=0.25, linewidth=0, label="8 of 10 searches")
    axes.plot(tried, curve.expected, color="#444444", linewidth=1.8, label="SGD: expected best of k settings")
    axes.set(xscale="log", title=NAMES[curve.measure], xlabel="k, settings of SGD that were trained", xlim=(1, None))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if curve.measure == "test_error":
        worst = max(float(curve.ducb.max()), float(curve.expected[min(4, len(tried) - 1)]))
        axes.set_ylim(0.97 * min(curve.expected[-1], curve.ducb.min()), 1.25 * worst)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    else:
        axes.set_yscale("log")
    for value in curve.ducb:
        axes.axhline(value, color=ducb.colour, linewidth=1)
        met = curve.caught_up(float(value))
        if met is not None:
            axes.plot(met, value, "o", color=ducb.colour, markersize=6)
    _labels(axes, curve)
    axes.legend(loc="upper right")


def _labels(axes: Axes, curve: Tuning) -> None:
    """Beside the lines, moved apart where they would lie on one another."""
    height = axes.transAxes.inverted().transform(axes.transData.transform([(1, value) for value in curve.ducb]))[:, 1]
    places = spread(height, 0.05)
    for (size, value), line, place in zip(curve.ducb.items(), height, places, strict=True):
        met = curve.caught_up(float(value))
        text = f"DUCB, batch {size}: " + ("no k" if met is None else f"k = {met}")
        axes.annotate(
            text,
            (1, line),
            (1.03, place),
            xycoords="axes fraction",
            va="center",
            fontsize=8,
            color=LOOKS["ducb"].colour,
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": LOOKS["ducb"].colour},
        )


def spread(places: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """The places in the same order, at least `gap` apart, as a whole no higher or lower than before."""
    order = np.argsort(places)
    moved = np.asarray(places, dtype=float)[order]
    for at in range(1, len(moved)):
        moved[at] = max(moved[at], moved[at - 1] + gap)
    moved -= moved.mean() - np.mean(places)
    result = np.empty_like(moved)
    result[order] = moved
    return result
