"""What the bandit chose: arms over epochs for each batch size, and trials per step over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from hotswap.report.choices import chosen, rates_of, trials_per_step
from hotswap.report.figures.style import line_styles, styled
from hotswap.report.results import Results

__all__ = ["draw_choices"]

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
            _trials(row[-1], trials_per_step(results.metrics, name), appearance.look.colour)
        if len(names) > MOST:
            figure.suptitle(f"The first {MOST} of {len(names)} that choose; the page has all", x=0.01, ha="left")
        bar = figure.colorbar(picture, ax=grid[:, :count], location="bottom", shrink=0.4, aspect=40)
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
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
    """Where the cells of a picture begin and end: halfway between neighbours, on a logarithmic axis."""
    if len(rates) == 1:
        return np.array([2 * rates[0], rates[0] / 2])
    between = np.sqrt(rates[:-1] * rates[1:])
    return np.concatenate([[rates[0] ** 2 / between[0]], between, [rates[-1] ** 2 / between[-1]]])


def _trials(axes: Axes, trials: dict[int, pd.Series], colour: str) -> None:
    styles = line_styles(trials)
    for size, series in trials.items():
        axes.plot(series.index, series, color=colour, linestyle=styles[size], label=f"batch {size}")
    most = max(float(series.max()) for series in trials.values())
    axes.set(title="trials per step", xlabel="epoch", ylim=(0, 1.35 * most or 1))
    axes.legend(loc="upper left", ncols=2)
