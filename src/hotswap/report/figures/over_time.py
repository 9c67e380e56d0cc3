"""Figure 2: test error, objective, rate and gradient norm of single runs against the clock."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from hotswap.report.figures.style import LOOKS, error_axis, line_styles, styled
from hotswap.report.summaries import label

__all__ = ["draw_figure_2"]

PANELS = (
    ("test_error", "test error"),
    ("train_nll", "training objective"),
    ("mean_lr", "learning rate (mean of an epoch)"),
    ("grad_norm", "gradient norm (mean of an epoch)"),
)


MARKS: dict[str, dict[str, Any]] = {  # apart also where there are no colours
    "ducb": {"linewidth": 1.9, "marker": "o", "markersize": 3.5, "markevery": 0.13},
    "adadelta": {"linewidth": 1.2, "marker": "^", "markersize": 4.5, "markevery": 0.13, "markerfacecolor": "white"},
    "sgd": {"linewidth": 1.4},
}


def draw_figure_2(curves: pd.DataFrame) -> Figure | None:
    """None where there are no single runs."""
    if curves.empty:
        return None
    with styled():
        figure = Figure(figsize=(10.4, 8), layout="constrained")
        grid = figure.subplots(2, 2, sharex=True)
        runs = [rows.sort_values("epoch") for _, rows in sorted(curves.groupby("run"), key=_order)]
        styles = line_styles(int(rows["batch_size"].iloc[0]) for rows in runs)
        greys = iter(("#222222", "#9a9a9a") * len(runs))
        for rows in runs:
            algorithm, name = str(rows["algorithm"].iloc[0]), label(rows.iloc[0])
            colour = next(greys) if algorithm == "sgd" else LOOKS[algorithm].colour
            line = {"color": colour, "linestyle": styles[int(rows["batch_size"].iloc[0])], "label": name}
            for axes, (column, _) in zip(grid.flat, PANELS, strict=True):
                if rows[column].notna().any():
                    axes.plot(rows["seconds"], rows[column], **line, **MARKS[algorithm])
        for axes, (_, title) in zip(grid.flat, PANELS, strict=True):
            axes.set(xscale="log", yscale="log", title=title)
        error_axis(grid[0][0].yaxis)
        for axes in grid[1]:
            axes.set_xlabel("seconds of training, one run at a time")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _order(item: tuple[str, pd.DataFrame]) -> tuple[int, int]:
    first = item[1].iloc[0]
    return list(LOOKS).index(first["algorithm"]), int(first["batch_size"])
