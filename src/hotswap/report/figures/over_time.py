"""Figure 2: test error, objective, rate and gradient norm of single runs against the clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from hotswap.report.figures.style import MARKERS, error_axis, line_styles, shade, styled
from hotswap.report.looks import Appearance, Looks
from hotswap.report.summaries import label, looks_of

__all__ = ["draw_figure_2"]

PANELS = (
    ("test_error", "test error"),
    ("train_nll", "training objective"),
    ("mean_lr", "learning rate (mean of an epoch)"),
    ("grad_norm", "gradient norm (mean of an epoch)"),
)


def draw_figure_2(curves: pd.DataFrame, looks: Looks | None = None) -> Figure | None:
    """None where there are no single runs."""
    if curves.empty:
        return None
    looks = looks or looks_of(curves)
    order = {name: place for place, name in enumerate(looks)}
    with styled():
        figure = Figure(figsize=(10.4, 8), layout="constrained")
        grid = figure.subplots(2, 2, sharex=True)
        runs = [rows.sort_values("epoch") for _, rows in curves.groupby("run")]
        runs.sort(key=lambda rows: (order[rows["algorithm"].iloc[0]], int(rows["batch_size"].iloc[0])))
        styles = line_styles(int(rows["batch_size"].iloc[0]) for rows in runs)
        drawn: Counter[str] = Counter()
        for rows in runs:
            appearance = looks[str(rows["algorithm"].iloc[0])]
            line = _line(appearance, drawn[appearance.name])
            line |= {"linestyle": styles[int(rows["batch_size"].iloc[0])], "label": label(rows.iloc[0], looks)}
            drawn[appearance.name] += 1
            for axes, (column, _) in zip(grid.flat, PANELS, strict=True):
                if rows[column].notna().any():
                    axes.plot(rows["seconds"], rows[column], **line)
        for axes, (_, title) in zip(grid.flat, PANELS, strict=True):
            axes.set(xscale="log", yscale="log", title=title)
        error_axis(grid[0][0].yaxis)
        for axes in grid[1]:
            axes.set_xlabel("seconds of training, one run at a time")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _line(appearance: Appearance, number: int) -> dict[str, Any]:
    """How an algorithm's lines are drawn, apart also where there are no colours.

    Of an algorithm of many settings a few were chosen, often at one batch size: they get different shades and no marks.
    """
    look = appearance.look
    if appearance.many:
        return {"linewidth": 1.4, "color": shade(look.colour, number)}
    marks = {"marker": MARKERS[look.marker], "markevery": 0.13, "color": look.colour}
    if look.filled:
        return {**marks, "linewidth": 1.9, "markersize": 3.5}
    return {**marks, "linewidth": 1.2, "markersize": 4.5, "markerfacecolor": "white"}
