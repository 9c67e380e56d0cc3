"""The price of tuning: what searches find with k trainings, against one run of an algorithm that needs no tuning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hotswap.report.figures.style import spread, styled
from hotswap.report.looks import Appearance, Looks
from hotswap.report.tuning import Found, Tuning

__all__ = ["draw_tuning"]

NAMES = {"train_nll": "training objective", "test_error": "test error"}
BAYESIAN = "#7A0177"


def draw_tuning(curves: Sequence[Tuning], looks: Looks | None = None) -> Figure | None:
    """None where either algorithm is missing."""
    if not curves:
        return None
    looks = looks or Looks()
    with styled():
        figure = Figure(figsize=(6.2 * len(curves), 4.2))
        row = figure.subplots(1, len(curves), squeeze=False)
        for axes, curve in zip(row[0], curves, strict=True):
            _panel(axes, curve, looks.of(curve.tuned), looks.of(curve.reference))
        figure.tight_layout()
    return figure


def _panel(axes: Axes, curve: Tuning, tuned: Appearance, reference: Appearance) -> None:
    tried = np.arange(1, len(curve.expected) + 1)
    colour = reference.look.colour
    searches: list[tuple[str, Found, str, str]] = [("random search", curve, "#444444", tuned.look.colour)]
    if curve.bayesian is not None:
        searches.append(("Bayesian search", curve.bayesian, BAYESIAN, BAYESIAN))
    for name, found, line, band in searches:
        axes.fill_between(tried, found.low, found.high, color=band, alpha=0.2, linewidth=0)
        axes.plot(tried, found.expected, color=line, linewidth=1.8, label=name)
    across = f"k, settings of {tuned.label} that were trained"
    axes.set(xscale="log", title=NAMES[curve.measure], xlabel=across, xlim=(1, None))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if curve.measure == "test_error":
        worst = max(float(curve.levels.max()), float(curve.expected[min(4, len(tried) - 1)]))
        axes.set_ylim(0.97 * min(curve.expected[-1], curve.levels.min()), 1.25 * worst)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    elif (curve.expected > 0).any():
        axes.set_yscale("log")
    values = curve.levels if curve.measure == "test_error" else curve.levels[curve.levels > 0]
    for value in values:
        axes.axhline(value, color=colour, linewidth=1)
        for _, found, line, _ in searches:
            met = found.caught_up(float(value))
            if met is not None:
                axes.plot(met, value, "o", color=line, markersize=5)
    _labels(axes, curve, values, reference)
    if len(values) < len(curve.levels):
        axes.set_title(f"{len(curve.levels) - len(values)} {reference.label} at 0: below", loc="right", fontsize=7.5)
    axes.legend(loc="upper right", title="mean, and 8 of 10 searches", title_fontsize=8)


def _labels(axes: Axes, curve: Tuning, values: pd.Series, reference: Appearance) -> None:
    """Beside the lines, moved apart where they would lie on one another."""
    if values.empty:
        return
    height = axes.transAxes.inverted().transform(axes.transData.transform([(1, value) for value in values]))[:, 1]
    places = spread(height, 0.05)
    for (size, value), line, place in zip(values.items(), height, places, strict=True):
        text = f"{reference.label}, batch {size}: {_met(curve, float(value))}"
        axes.annotate(
            text,
            (1, line),
            (1.03, place),
            xycoords="axes fraction",
            va="center",
            fontsize=8,
            color=reference.look.colour,
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": reference.look.colour},
        )


def _met(curve: Tuning, value: float) -> str:
    """With how many trainings searches match a value."""
    met = curve.caught_up(value)
    if met is None:
        return "no k"
    return f"k = {met}" if curve.bayesian is None else f"k = {met}, Bayesian {curve.bayesian.caught_up(value)}"
