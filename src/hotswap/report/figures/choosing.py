"""The choices of the bandit, which the paper could not show, and the price of tuning without a bandit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hotswap.report.figures.style import line_styles, percents, spread, styled
from hotswap.report.looks import Appearance, Looks
from hotswap.report.results import Results
from hotswap.report.summaries import chosen, rates_of, trials_per_step
from hotswap.report.tuning import Found, Tuning

__all__ = ["draw_choices", "draw_tuning"]

MOST = 4  # rows: a figure of dozens cannot be looked at, and the page has them all
LEAST = 1e-3  # of the steps; what is rarer is as good as never


def draw_choices(results: Results) -> Figure | None:
    """A row of pictures for each algorithm that chooses, the first few of many; None where there are no runs of any."""
    names = [name for name in results.arm_values if results.looks.get(name)]
    shares = {name: found for name in names[:MOST] if (found := chosen(results, name))}
    if not shares:
        return None
    sizes = sorted({size for tables in shares.values() for size in tables})
    with styled():
        count = len(sizes)
        figure = Figure(figsize=(2.3 * count + 3.6, 3.6 * len(shares)), layout="constrained")
        grid = figure.subplots(len(shares), count + 1, squeeze=False, width_ratios=[1] * count + [1.5])
        for row, (name, tables) in zip(grid, shares.items(), strict=True):
            appearance = results.looks.of(name)
            begin = f"{appearance.label}, " if len(shares) > 1 else ""
            for axes, size in zip(row, sizes, strict=False):
                if size not in tables:
                    axes.set_visible(False)
                    continue
                picture = _picture(axes, tables[size], np.asarray(rates_of(results, name)))
                axes.set_title(f"{begin}batch {size}")
            row[0].set_ylabel("learning rate")
            _trials_panel(row[-1], trials_per_step(results.metrics, name), appearance.look.colour)
        if len(names) > MOST:
            figure.suptitle(f"The first {MOST} of {len(names)} that choose; the page has all", x=0.01, ha="left")
        bar = figure.colorbar(picture, ax=grid[:, :count], location="bottom", shrink=0.4, aspect=40)
        bar.ax.xaxis.set_major_formatter(percents)
        bar.set_label("steps of an epoch in which a rate was taken")
    return figure


def _picture(axes: Axes, table: pd.DataFrame, rates: NDArray[np.float64]) -> QuadMesh:
    """One batch size: epochs across, rates up, the darker the rarer."""
    edges = np.concatenate([[0], table.index.to_numpy()])
    shares = np.maximum(table.to_numpy().T, LEAST)
    norm = LogNorm(LEAST, 1)
    picture = axes.pcolormesh(edges, _bounds(rates), shares, norm=norm, cmap="cividis", rasterized=True)
    axes.set(yscale="log", xlabel="epoch")
    axes.grid(visible=False)
    axes.label_outer()
    return picture


def _bounds(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges of a picture's cells: halfway between neighbours, on a logarithmic axis."""
    if len(rates) == 1:
        return np.array([2 * rates[0], rates[0] / 2])
    between = np.sqrt(rates[:-1] * rates[1:])
    return np.concatenate([[rates[0] ** 2 / between[0]], between, [rates[-1] ** 2 / between[-1]]])


def _trials_panel(axes: Axes, trials: dict[int, pd.Series], colour: str) -> None:
    styles = line_styles(trials)
    for size, series in trials.items():
        axes.plot(series.index, series, color=colour, linestyle=styles[size], label=f"batch {size}")
    most = max(float(series.max()) for series in trials.values())
    axes.set(title="trials per step", xlabel="epoch", ylim=(0, 1.35 * most or 1))
    axes.legend(loc="upper left", ncols=2)


# --- the price of tuning ----------------------------------------------------------------------------------------------

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
    axes.xaxis.set_major_formatter("{x:g}")
    if curve.measure == "test_error":
        worst = max(float(curve.levels.max()), float(curve.expected[min(4, len(tried) - 1)]))
        axes.set_ylim(0.97 * min(curve.expected[-1], curve.levels.min()), 1.25 * worst)
        axes.yaxis.set_major_formatter(percents)
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
