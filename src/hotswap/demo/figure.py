"""The demo's picture: training loss and test error over the cost, with the moments at which the race dropped lanes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import NDArray

from hotswap.demo.training import Outcome, Point
from hotswap.files import replacing

__all__ = ["draw", "save"]

# Okabe and Ito's colours, told apart by colour-blind readers; names beside the curves tell them apart in grey.
RACE = "#D55E00"
OTHERS = ("#0072B2", "#009E73", "#8A6FA8", "#56B4E9")
QUIET = "#555555"

APART = 0.055
"""Distance of two names at least, as a share of the height."""

LINE = 0.042
"""Height of a line of small text, as a share of the height."""

Floats = NDArray[np.float64]


def draw(outcomes: Sequence[Outcome], title: str) -> Figure:
    """Training loss and test error over the cost, side by side."""
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(12, 5.2), layout="constrained")
        left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
        _panel(left, outcomes, lambda point: point.loss, "Training loss")
        _panel(right, outcomes, lambda point: 100 * point.error, "Test error, %")
        figure.suptitle(f"{title}\n", fontsize=13, x=0.01, ha="left")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _panel(axes: Axes, outcomes: Sequence[Outcome], value: Callable[[Point], float], title: str) -> None:
    shown = [(outcome, colour, *_positive(outcome, value)) for outcome, colour in _coloured(outcomes)]
    shown = [one for one in shown if len(one[2])]
    for outcome, colour, passes, values in shown:
        width, order = (2.8, 4) if outcome.standings else (1.7, 3)
        dot = "o" if len(passes) == 1 else ""  # one measurement makes no line
        axes.plot(passes, values, color=colour, marker=dot, linewidth=width, zorder=order)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(axes.get_ylim())  # no mark changes it
    for outcome, _, passes, values in shown:
        _mark_drops(axes, outcome, passes, values)
    _name(axes, [(math.log(values[-1]), outcome.name, colour) for outcome, colour, _, values in shown])
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("forward-and-backward passes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,g}"))
    axes.minorticks_off()
    axes.grid(visible=True, axis="y", alpha=0.25)
    axes.tick_params(colors=QUIET)


def _coloured(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, str]]:
    others = iter(range(len(outcomes)))
    return [(one, RACE if one.standings else OTHERS[next(others) % len(OTHERS)]) for one in outcomes]


def _positive(outcome: Outcome, value: Callable[[Point], float]) -> tuple[Floats, Floats]:
    """Costs and values that a logarithmic axis can show; a run that has failed has none."""
    passes = np.array([point.passes for point in outcome.points])
    values = np.array([value(point) for point in outcome.points])
    shown = np.isfinite(values) & (values > 0)
    return passes[shown], values[shown]


def _mark_drops(axes: Axes, outcome: Outcome, passes: Floats, values: Floats) -> None:
    """A ring on the race's curve wherever it dropped lanes, with their names below, where no curve goes."""
    dropped: dict[int, list[str]] = {}
    for lane in outcome.standings or ():
        if lane.dropped_at:
            dropped.setdefault(lane.dropped_at, []).append(lane.name)
    low, place = axes.get_ylim()[0], 0.025
    for step in sorted(dropped, reverse=True):
        height = float(np.exp(np.interp(np.log(step), np.log(passes), np.log(values))))
        axes.vlines(step, low, height, color=RACE, linewidth=0.9, linestyle=":")
        axes.scatter(step, height, s=50, facecolors="white", edgecolors=RACE, linewidths=2, zorder=5)
        lines = [*sorted(dropped[step]), "dropped"]
        text = "\n".join(f" {line}" for line in lines)
        axes.text(step, place, text, color=RACE, fontsize=9, va="bottom", transform=axes.get_xaxis_transform())
        place += LINE * len(lines) + 0.01


def _name(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each contender's name at the end of its curve, no two of them on one another."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    below = -math.inf
    for height, name, colour in sorted(ends):
        below = max((height - low) / (high - low), below + APART)
        weight = "bold" if colour == RACE else "normal"
        axes.text(1.015, below, name, color=colour, weight=weight, va="center", transform=axes.transAxes)
