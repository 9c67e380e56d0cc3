"""Figures 1 and 2 of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hotswap.report.figures.style import MARKERS, error_axis, line_styles, objective_axis, shade, spread, styled
from hotswap.report.looks import Appearance, Looks
from hotswap.report.summaries import label, looks_of, settings, shown_epochs

__all__ = ["draw_figure_1", "draw_figure_2", "figure_1_data"]

NAMED = 40  # batch sizes that can be written beside marks
CROWD = 12  # algorithms that a legend can say more of than their names


def figure_1_data(metrics: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """By epoch: a row per setting, see `settings`."""
    return {epoch: settings(metrics, epoch) for epoch in shown_epochs(metrics)}


def draw_figure_1(metrics: pd.DataFrame, looks: Looks | None = None) -> Figure | None:
    """None where there is nothing to show."""
    data = figure_1_data(metrics)
    looks = looks or looks_of(metrics)
    floor = _floor(data)
    if floor is None:
        return None
    with styled():
        figure = Figure(figsize=(5.2 * len(data), 4.8), layout="constrained")
        row = figure.subplots(1, len(data), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (epoch, table) in zip(row, data.items(), strict=True):
            _panel(axes, table, looks, floor)
            axes.set_title(f"After {epoch} epoch{'s' if epoch > 1 else ''}")
        row[0].set_ylim(bottom=0.87 * row[0].get_ylim()[0])  # room for the batch sizes under the lowest marks
        for axes in row:
            error_axis(axes.yaxis)
            objective_axis(axes.xaxis)
        row[0].set_ylabel("test error")
        last = data[max(data)]
        named = looks.top() if int(last["algorithm"].isin(looks.top()).sum()) <= NAMED else ()
        handles = _legend(last, looks, named)
        columns = 2 if len(handles) < 6 else (3 if len(handles) < 16 else 4)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
        for axes, table in zip(row, data.values(), strict=True):
            for name in named:
                _batch_sizes(axes, table[table["algorithm"] == name], looks[name], floor)
    return figure


def _floor(data: dict[int, pd.DataFrame]) -> float | None:
    """The place of an objective of 0, to the left of every other objective; None if nothing can be drawn."""
    values = pd.concat([table["train_nll"] for table in data.values()]) if data else pd.Series(dtype=float)
    positive = values[np.isfinite(values) & (values > 0)]
    return float(positive.min()) / 3 if len(positive) else None


def _panel(axes: Axes, table: pd.DataFrame, looks: Looks, floor: float) -> None:
    finite = table[np.isfinite(table["train_nll"]) & np.isfinite(table["test_error"])]
    shown = finite[finite["test_error"] > 0]  # the axis is logarithmic
    for name, appearance in looks.items():
        rows = shown[shown["algorithm"] == name]
        if len(rows):
            _marks(axes, rows, appearance, floor)
    axes.set(xscale="log", yscale="log", xlabel="training objective (negative log likelihood)")
    notes = []
    if len(finite) < len(table):
        notes.append(f"{len(table) - len(finite)} of {len(table)} settings diverged: not shown")
    if len(shown) < len(finite):
        notes.append(f"{len(finite) - len(shown)} of {len(table)} settings with a test error of 0: not shown")
    if (shown["train_nll"] <= 0).any():
        notes.append(f"{int((shown['train_nll'] <= 0).sum())} with an objective of 0: at the left edge")
    if notes:
        axes.set_title("; ".join(notes), loc="right", fontsize=7.5, fontweight="normal", color="#555555")


def _marks(axes: Axes, rows: pd.DataFrame, appearance: Appearance, floor: float) -> None:
    look = appearance.look
    x, y = rows["train_nll"].clip(lower=floor), rows["test_error"]
    least = rows["train_nll_min"].clip(lower=floor)
    most = rows["train_nll_max"].where(np.isfinite(rows["train_nll_max"]), x).clip(lower=floor)
    axes.errorbar(
        x,
        y,
        xerr=(x - least, most - x),
        yerr=(y - rows["test_error_min"], rows["test_error_max"] - y),
        fmt=MARKERS[look.marker],
        color=look.colour,
        markersize=look.size,
        markerfacecolor=look.colour if look.filled else "white",
        markeredgewidth=0 if look.filled else 1.5,
        ecolor="#d5d8dc" if appearance.many else look.colour,  # of hundreds of settings the marks matter, not the bars
        elinewidth=0.6 if appearance.many else 1.2,
    )


def _batch_sizes(axes: Axes, table: pd.DataFrame, appearance: Appearance, floor: float) -> None:
    """Batch sizes under an algorithm's marks, moved apart where marks are close."""
    rows = table[np.isfinite(table["train_nll"]) & (table["test_error"] > 0)]
    if rows.empty:
        return
    low, high = np.log10(axes.get_xlim())
    x = np.log10(rows["train_nll"].clip(lower=floor).to_numpy())
    places = spread(x, (high - low) * 0.052)
    for size, place, y in zip(rows["batch_size"], places, rows["test_error"], strict=True):
        axes.annotate(
            str(size),
            (10.0**place, y),
            (0, -13),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7,
            color=appearance.look.colour,
            annotation_clip=True,
        )


def _legend(last: pd.DataFrame, looks: Looks, named: Collection[str]) -> list[Line2D]:
    """Names with the number of settings, what lies on top first; of dozens of algorithms the names alone."""
    handles = []
    crowd = last["algorithm"].nunique() > CROWD
    for appearance in looks.from_top():
        count, look = int((last["algorithm"] == appearance.name).sum()), appearance.look
        if count:
            swapped = appearance.chooses and "hot" not in appearance.label.lower()  # unless its label says so itself
            text = f"{'hot-swapped ' if swapped else ''}{appearance.label}"
            text += f": {count} setting{'s' if count > 1 else ''}"
            text += ", by batch size" if appearance.name in named else ""
            text = appearance.label if crowd else text
            face = look.colour if look.filled else "white"
            handle = Line2D([], [], linestyle="", marker=MARKERS[look.marker], color=look.colour, label=text)
            handle.set(markerfacecolor=face, markersize=max(look.size - 1, 4))
            handles.append(handle)
    bars = "bars: least to most of the seeds"
    return [*handles, Line2D([], [], color="#8a8f98", linewidth=1, label=f"mark: median; {bars}")]


# --- Figure 2: single runs against the clock --------------------------------------------------------------------------

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
