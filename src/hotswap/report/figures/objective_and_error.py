"""Figure 1: training objective against test error, one mark per setting, at two moments."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from hotswap.report.figures.style import LOOKS, Look, styled
from hotswap.report.summaries import settings, shown_epochs

__all__ = ["draw_figure_1", "figure_1_data"]


def figure_1_data(metrics: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """By epoch: a row per setting, see `settings`."""
    return {epoch: settings(metrics, epoch) for epoch in shown_epochs(metrics)}


def draw_figure_1(metrics: pd.DataFrame) -> Figure | None:
    """None where there is nothing to show."""
    data = figure_1_data(metrics)
    if not data:
        return None
    with styled():
        figure = Figure(figsize=(5.2 * len(data), 4.6))
        row = figure.subplots(1, len(data), sharex=True, sharey=True, squeeze=False)
        for axes, (epoch, table) in zip(row[0], data.items(), strict=True):
            _panel(axes, table)
            axes.set_title(f"After {epoch} epochs")
        row[0][0].set_ylabel("test error")
        _legend(row[0][-1], data)
        figure.text(
            0.995, 0.005, "one mark per setting: median of its seeds, bars from least to most", ha="right", fontsize=8
        )
        figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    finite = table[np.isfinite(table["train_nll"])]
    for algorithm, look in LOOKS.items():
        rows = finite[finite["algorithm"] == algorithm]
        if len(rows):
            _marks(axes, rows, look)
        if algorithm == "ducb":
            for size, x, y in zip(rows["batch_size"], rows["train_nll"], rows["test_error"], strict=True):
                axes.annotate(
                    str(size), (x, y), (0, -14), textcoords="offset points", ha="center", fontsize=7, color=look.colour
                )
    axes.set(xscale="log", yscale="log", xlabel="training objective (negative log likelihood)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks([0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 0.9])
    axes.minorticks_off()
    if len(finite) < len(table):
        text = f"{len(table) - len(finite)} settings diverged and are not shown"
        axes.annotate(text, (1, 1), xycoords="axes fraction", ha="right", va="top", color="#555555")


def _marks(axes: Axes, rows: pd.DataFrame, look: Look) -> None:
    x, y = rows["train_nll"], rows["test_error"]
    most = rows["train_nll_max"].where(np.isfinite(rows["train_nll_max"]), x)
    axes.errorbar(
        x,
        y,
        xerr=(x - rows["train_nll_min"], most - x),
        yerr=(y - rows["test_error_min"], rows["test_error_max"] - y),
        fmt=look.marker,
        color=look.colour,
        markersize=look.size,
        markerfacecolor=look.colour if look.filled else "white",
        markeredgewidth=0 if look.filled else 1.5,
        ecolor=look.colour if look.size > 5 else "#d5d8dc",  # of hundreds of settings the marks matter, not the bars
        elinewidth=1.2 if look.size > 5 else 0.6,
    )


def _legend(axes: Axes, data: dict[int, pd.DataFrame]) -> None:
    """Names with the number of settings, most important first."""
    last = data[max(data)]
    for algorithm, look in reversed(LOOKS.items()):
        count = int((last["algorithm"] == algorithm).sum())
        if count:
            face = look.colour if look.filled else "white"
            text = f"{look.name} ({count} settings" if count > 1 else f"{look.name} (1 setting"
            text += ", by batch size)" if algorithm == "ducb" else ")"
            axes.plot([], [], look.marker, color=look.colour, markerfacecolor=face, markersize=6, label=text)
    axes.legend(loc="upper left")
