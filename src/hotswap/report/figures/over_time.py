"""Figure 2: test error, objective, rate and gradient norm of single runs against the clock."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hotswap.report.figures.style import LOOKS, SIZES, styled
from hotswap.report.summaries import label

__all__ = ["draw_figure_2"]

PANELS = (
    ("test_error", "test error"),
    ("train_nll", "training objective"),
    ("mean_lr", "learning rate (mean of an epoch)"),
    ("grad_norm", "gradient norm (mean of an epoch)"),
)


def draw_figure_2(curves: pd.DataFrame) -> Figure | None:
    """None where there are no single runs."""
    if curves.empty:
        return None
    with styled():
        figure = Figure(figsize=(10.4, 8), layout="constrained")
        grid = figure.subplots(2, 2, sharex=True)
        runs = [rows.sort_values("epoch") for _, rows in sorted(curves.groupby("run"), key=_order)]
        greys = iter(("#222222", "#9a9a9a") * len(runs))
        colours = [next(greys) if _algorithm(rows) == "sgd" else LOOKS[_algorithm(rows)].colour for rows in runs]
        for axes, (column, title) in zip(grid.flat, PANELS, strict=True):
            for rows, colour in zip(runs, colours, strict=True):
                if rows[column].notna().any():
                    style = SIZES.get(int(rows["batch_size"].iloc[0]), "-")
                    name = label(rows.iloc[0])
                    axes.plot(rows["seconds"], rows[column], color=colour, linestyle=style, linewidth=1.4, label=name)
            axes.set(xscale="log", yscale="log", title=title)
        grid[0][0].set_yticks([0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 0.9])
        grid[0][0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        grid[0][0].minorticks_off()
        for axes in grid[1]:
            axes.set_xlabel("seconds of training, one run at a time")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _algorithm(rows: pd.DataFrame) -> str:
    return str(rows["algorithm"].iloc[0])


def _order(item: tuple[str, pd.DataFrame]) -> tuple[int, int]:
    first = item[1].iloc[0]
    return list(LOOKS).index(first["algorithm"]), int(first["batch_size"])
