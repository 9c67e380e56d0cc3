"""Figures: all scores at a glance, the performance profile, and validation over cost for each workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hotswap.bench.methods import FIRST
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.report.methods import appearances, label, three_digits, title_of
from hotswap.bench.runs import PERCENTS, Result
from hotswap.bench.scores import Key, Score, curve, overall, profile, untrained
from hotswap.report.figures.style import DASHES, LINES, MARKERS, error_axis, objective_axis, set_ticks, styled
from hotswap.report.looks import Appearance

__all__ = ["draw_overview", "draw_profile", "draw_workload"]

SHOWN = PERCENTS[1:]
"""The axis of costs is logarithmic, so without 0."""

BESIDE = 1.02
"""By what the bars at the end lie apart."""

MOST = 4.0
"""How far the profile goes."""

GREY = "#777777"
"""Other methods where only ours have colours."""

TICKS = (0.25, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8)
"""The ticks of axes of scores."""


def draw_workload(workload: str, runs: dict[Key, list[Result]]) -> Figure | None:
    """The median of each method against the share of the budget; None where nothing was measured.

    The least and the greatest are a band for ours and for the reference, and a bar at the end for the others: a dozen
    bands cannot be told apart.
    """
    start = untrained(runs).get(workload, math.nan)
    curves = {key: curve(some, start) for key, some in runs.items() if key[0] == workload}
    own = {key: bands for key, bands in curves.items() if any(math.isfinite(middle) for middle, *_ in bands.values())}
    if not own:
        return None
    drawn, (title, measured) = appearances(method for _, method, _ in own), title_of(workload)
    with styled():
        figure = Figure(figsize=(8.4, 4.8), layout="constrained")
        axes = figure.subplots()
        ends = []
        order = {name: place for place, name in enumerate(drawn)}
        for (_, method, configuration), bands in sorted(own.items(), key=lambda pair: order[pair[0][1]]):
            middle, low, high = np.array([bands[percent] for percent in SHOWN]).T
            look = drawn[method].look
            if look.layer:
                axes.fill_between(SHOWN, low, high, color=look.colour, alpha=0.18, linewidth=0)
            else:
                place = 100 * BESIDE ** (1 + order[method])
                axes.plot([place, place], [low[-1], high[-1]], color=look.colour, linewidth=1.1, linestyle="-")
                axes.plot(place, middle[-1], MARKERS[look.marker], color=look.colour, markersize=4)
            name = label(method, configuration)
            (line,) = axes.plot(
                SHOWN, middle, label=f"{name}: {three_digits(middle[-1])}", **_line(drawn[method], configuration)
            )
            ends.append((middle[-1], line))
        lowest = min(band[1] for bands in own.values() for band in bands.values())
        highest = _highest([bands[SHOWN[0]][0] for bands in own.values()], start)
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(SHOWN[0], 100 * BESIDE ** (2 + len(drawn))),
            ylim=(0.93 * lowest, 1.05 * highest),
        )
        axes.set(title=title, xlabel="% of the budget, in forward-and-backward passes", ylabel=measured)
        set_ticks(axes.xaxis, [1, 2, 5, 10, 20, 30, 50, 100])
        (error_axis if measured.endswith("error") else objective_axis)(axes.yaxis)
        handles = [line for _, line in sorted(ends, key=lambda pair: pair[0])]
        figure.legend(handles=handles, loc="outside right upper", title="at the end", fontsize=7.5, handlelength=2.8)
    return figure


def _line(shown: Appearance, configuration: str) -> dict[str, Any]:
    """For matplotlib: ours strong, the others thin, the reference without marks; a second configuration dotted."""
    look, reference = shown.look, shown.name == REFERENCE
    return {
        "color": look.colour,
        "linewidth": (1.1, 1.8, 2.4)[look.layer],
        "linestyle": DASHES[look.dashes] if configuration == FIRST or reference else LINES[3],
        "marker": None if reference else MARKERS[look.marker],
        "markersize": 5 if shown.chooses else 4,
        "markerfacecolor": look.colour if look.filled else "white",
    }


def _highest(early: Sequence[float], start: float) -> float:
    """The upper end of the axis: a method that makes the network worse than at the start leaves the picture."""
    worst = max(value for value in early if math.isfinite(value))
    return min(worst, start) if math.isfinite(start) else worst


def draw_overview(scores: Sequence[Score]) -> Figure | None:
    """A row for each method: a dot for its score on every workload, a bar at their geometric mean, the best on top.

    Ours are in colour. A hollow dot is a score with runs that count as the untrained network. None where there are no
    scores.
    """
    rows = [row for row in overall(scores) if row.method != REFERENCE][::-1]
    if not rows:
        return None
    count, drawn = max(row.workloads for row in rows), appearances(row.method for row in rows)
    ours = {name for name, shown in drawn.items() if shown.chooses}
    with styled():
        figure = Figure(figsize=(8.4, 0.9 + 0.27 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(rows):
            own = [s for s in scores if (s.method, s.configuration) == (row.method, FIRST) and not math.isnan(s.ratio)]
            ratios = [score.ratio for score in own]
            colour = drawn[row.method].look.colour if row.method in ours else GREY
            axes.plot([min(ratios), max(ratios)], [place, place], color=colour, linewidth=1, alpha=0.35)
            for score in own:
                face = "white" if score.marked else colour
                axes.plot(score.ratio, place, "o", color=colour, markerfacecolor=face, markersize=4.5)
            axes.plot(row.mean, place, "|", color=colour, markersize=15, markeredgewidth=2.8)
            axes.annotate(
                three_digits(row.mean),
                (1.01, place),
                xycoords=("axes fraction", "data"),
                va="center",
                weight="bold" if row.method in ours else "normal",
            )
        axes.axvline(1, color="#000000", linewidth=1, linestyle=(0, (5, 1.5)))
        fewer = [f" ({row.workloads} of {count})" if row.workloads < count else "" for row in rows]
        axes.set_yticks(range(len(rows)), [label(row.method) + note for row, note in zip(rows, fewer, strict=True)])
        for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
            tick.set_fontweight("bold" if row.method in ours else "normal")
        axes.set(xscale="log", ylim=(-0.7, len(rows) - 0.3))
        axes.set(
            title=f"Scores on {count} workload{'s' if count > 1 else ''}, and their geometric mean",
            xlabel="validation measure at the end over the tuned reference's: 1 is as good as tuned, left is better",
        )
        set_ticks(axes.xaxis, TICKS)
        axes.grid(visible=False, axis="y")
    return figure


def draw_profile(scores: Sequence[Score]) -> Figure | None:
    """On which share of workloads a method's score is at most τ; None where there are no scores."""
    levels = np.geomspace(min([0.8, *(s.ratio for s in scores if s.ratio > 0)]), MOST, 400)
    shares = profile(scores, levels.tolist())
    if not shares:
        return None
    drawn = appearances(shares)
    count = len({score.workload for score in scores if not math.isnan(score.ratio)})
    with styled():
        figure = Figure(figsize=(8.4, 4.4), layout="constrained")
        axes = figure.subplots()
        handles = {}
        for name, shown in drawn.items():
            line = {**_line(shown, FIRST), "marker": None}
            (handles[name],) = axes.plot(levels, shares[name], drawstyle="steps-post", label=label(name), **line)
        axes.axvline(1, color="#888888", linewidth=0.8)
        axes.set(xscale="log", xlim=(levels[0], MOST), ylim=(-0.02, 1.03))
        axes.set(
            title="Performance profile",
            xlabel="τ: the validation measure at the end over the tuned reference's",
            ylabel=f"share of {count} workload{'s' if count > 1 else ''} with a score of at most τ",
        )
        set_ticks(axes.xaxis, TICKS)
        best = sorted(handles, key=lambda name: -float(np.mean(shares[name])))
        figure.legend(
            handles=[handles[name] for name in best], loc="outside right upper", fontsize=7.5, handlelength=2.8
        )
    return figure
