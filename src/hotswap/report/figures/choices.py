"""What the bandit chose: arms over epochs for each batch size, and trials per step over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from hotswap.report.choices import chosen, trials_per_step
from hotswap.report.figures.style import line_styles, styled
from hotswap.report.results import Results

__all__ = ["draw_choices"]

LEAST = 1e-3  # of the steps; what is rarer is as good as never


def draw_choices(results: Results) -> Figure | None:
    """None where there are no runs of DUCB."""
    shares, trials = chosen(results), trials_per_step(results.metrics)
    if not shares:
        return None
    with styled():
        count = len(shares)
        figure = Figure(figsize=(2.3 * count + 3.6, 3.6), layout="constrained")
        row = figure.subplots(1, count + 1, width_ratios=[1] * count + [1.5])
        for axes, (size, table) in zip(row, shares.items(), strict=False):
            edges = np.concatenate([[0], table.index.to_numpy()])
            rates = np.asarray(results.rates)
            bounds = _bounds(rates)
            picture = axes.pcolormesh(
                edges,
                bounds,
                np.maximum(table.to_numpy().T, LEAST),
                norm=LogNorm(LEAST, 1),
                cmap="cividis",
                rasterized=True,
            )
            axes.set(yscale="log", title=f"batch {size}", xlabel="epoch")
            axes.grid(visible=False)
            axes.label_outer()
        row[0].set_ylabel("learning rate")
        bar = figure.colorbar(picture, ax=row[:count], location="bottom", shrink=0.4, aspect=40)
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        bar.set_label("steps of an epoch in which a rate was taken")
        _trials(row[-1], trials)
    return figure


def _bounds(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where the cells of a picture begin and end: halfway between neighbours, on a logarithmic axis."""
    if len(rates) == 1:
        return np.array([2 * rates[0], rates[0] / 2])
    between = np.sqrt(rates[:-1] * rates[1:])
    return np.concatenate([[rates[0] ** 2 / between[0]], between, [rates[-1] ** 2 / between[-1]]])


def _trials(axes: Axes, trials: dict[int, pd.Series]) -> None:
    styles = line_styles(trials)
    for size, series in trials.items():
        axes.plot(series.index, series, color="#0072B2", linestyle=styles[size], label=f"batch {size}")
    most = max(float(series.max()) for series in trials.values())
    axes.set(title="trials per step", xlabel="epoch", ylim=(0, 1.35 * most))
    axes.legend(loc="upper left", ncols=2)
