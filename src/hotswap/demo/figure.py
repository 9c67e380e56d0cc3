"""The demo's picture: how the losses fell, and which rates were chosen on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hotswap.demo.training import Outcome
from hotswap.files import replacing

__all__ = ["draw", "save"]

# Okabe and Ito's colours, told apart by colour-blind readers; line styles tell them apart in grey.
HOT = ("#D55E00", "#E69F00", "#009E73")
ADAPTIVE = ("#0072B2", "#56B4E9")
GREYS = ("#000000", "#555555", "#888888", "#AAAAAA")
STYLES = ("-", "--", "-.", ":")

WORST_LOSS = 3.0  # guessing one of ten classes at random costs 2.3
WORST_ERROR = 0.2


def draw(outcomes: Sequence[Outcome], title: str) -> Figure:
    """Training loss, test error and chosen rates, side by side."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(13, 4.6), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        looks = _looks(outcomes)
        for outcome, (colour, style, width) in zip(outcomes, looks, strict=True):
            epochs = np.arange(1, len(outcome.train_losses) + 1)
            off = "" if min(outcome.train_losses) < WORST_LOSS else " (off the scale)"
            line = {"color": colour, "linestyle": style, "linewidth": width, "label": outcome.name + off}
            line["marker"] = "o" if len(epochs) == 1 else ""  # one epoch makes no line
            left.plot(epochs, outcome.train_losses, **line)
            middle.plot(epochs, 100 * np.array(outcome.test_errors), **line)
        _finish(left, "Training loss (mean over the epoch)", "epoch")
        _finish(middle, "Test error, %", "epoch")
        left.set_ylim(top=WORST_LOSS)  # a run that failed would squash the others
        middle.set_ylim(0, min(middle.get_ylim()[1], 100 * WORST_ERROR))
        for outcome, (colour, _, _) in zip(outcomes, looks, strict=True):
            if outcome.swaps:
                _rates(right, outcome, colour)
        _finish(right, "Rate chosen (median, middle 80 %)", "epoch")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(title)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _looks(outcomes: Sequence[Outcome]) -> list[tuple[str, str, float]]:
    looks: list[tuple[str, str, float]] = []
    hot = plain = adaptive = 0
    for outcome in outcomes:
        if outcome.swaps:
            looks.append((HOT[hot % len(HOT)], STYLES[hot % len(STYLES)], 2.4))
            hot += 1
        elif outcome.tuned:
            looks.append((GREYS[plain % len(GREYS)], STYLES[plain % len(STYLES)], 1.3))
            plain += 1
        else:
            looks.append((ADAPTIVE[adaptive % len(ADAPTIVE)], STYLES[adaptive % len(STYLES)], 1.8))
            adaptive += 1
    return looks


def _rates(axes: Axes, outcome: Outcome, colour: str) -> None:
    """Quantiles of the rates over quarters of an epoch; steps that did not move are left out."""
    pieces = np.array_split(np.array(outcome.rates), 4 * len(outcome.train_losses))
    moved = [piece[piece > 0] for piece in pieces]
    places = np.linspace(0, len(outcome.train_losses), len(moved), endpoint=False)
    kept = [
        (place, *np.quantile(piece, [0.1, 0.5, 0.9])) for place, piece in zip(places, moved, strict=True) if len(piece)
    ]
    if not kept:
        return
    place, low, middle, high = np.array(kept).T
    axes.fill_between(place, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(place, middle, color=colour, linewidth=2)


def _finish(axes: Axes, title: str, label: str) -> None:
    if not title.startswith("Test"):
        axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(label)
    axes.grid(visible=True, which="major", alpha=0.25)
