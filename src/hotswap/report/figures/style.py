"""One look for all figures: colours that colour-blind readers tell apart, marks that survive a grey printer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

__all__ = [
    "DASHES",
    "LINES",
    "MARKERS",
    "error_axis",
    "line_styles",
    "objective_axis",
    "percents",
    "save",
    "set_ticks",
    "shade",
    "spread",
    "styled",
]


MARKERS = {"circle": "o", "triangle": "^", "square": "s", "diamond": "D"}
"""Matplotlib's names of an algorithm's marks."""

LINES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)))

DASHES = dict(zip(("solid", "dashed", "dotted"), LINES, strict=False))
"""Matplotlib's lines for an algorithm's dashes."""


def line_styles(sizes: Iterable[int]) -> dict[int, Any]:
    """A line style for each batch size, by rank."""
    return {size: LINES[rank % len(LINES)] for rank, size in enumerate(sorted(set(sizes)))}


def shade(colour: str, number: int) -> str:
    """A colour for the first, second, ... of an algorithm's lines: by turns nearly black and a little lighter."""
    share, towards = ((0.75, 0), (0.12, 255))[number % 2]
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round((1 - share) * part + share * towards):02x}" for part in parts)


def set_ticks(axis: Axis, places: Iterable[float], text: str | Callable[[float, float], str] = "{x:g}") -> None:
    """Ticks at these places, with numbers in this form, and none between."""
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(text)


def percents(value: float, _: float) -> str:
    """A tick of an axis of error rates."""
    return f"{100 * value:.3g} %"


def error_axis(axis: Axis) -> None:
    """Ticks of a logarithmic axis of error rates: round percentages, as many as the range needs."""
    low, high = axis.get_view_interval()
    ticks = [step * 10.0**power for power in (-4, -3, -2, -1) for step in (1, 1.5, 2, 3, 5)] + [0.9]
    inside = [tick for tick in ticks if low <= tick <= high]
    set_ticks(axis, inside if len(inside) >= 3 else _round_numbers(low, high, 5), percents)


def objective_axis(axis: Axis) -> None:
    """Ticks of a logarithmic axis of losses: powers of ten, or a few round numbers where it has hardly one of them."""
    low, high = axis.get_view_interval()
    if high < 20 * low:
        set_ticks(axis, _round_numbers(low, high, 4), "{x:.3g}")


def _round_numbers(low: float, high: float, count: int) -> list[float]:
    ticks = MaxNLocator(count, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in ticks if low <= tick <= high]


def spread(places: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """The places in the same order, at least `gap` apart, as a whole no higher or lower than before."""
    order = np.argsort(places)
    moved = np.asarray(places, dtype=float)[order]
    for at in range(1, len(moved)):
        moved[at] = max(moved[at], moved[at - 1] + gap)
    moved -= moved.mean() - np.mean(places)
    result = np.empty_like(moved)
    result[order] = moved
    return result


@contextmanager
def styled() -> Iterator[None]:
    """Draw with it, whatever the user's own settings are."""
    settings: dict[str, Any] = {
        "figure.dpi": 150,
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "svg.hashsalt": "hotswap",  # the same figure gives the same file
        "svg.fonttype": "none",
    }
    with style.context(["default", settings]):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or an SVG, by the ending; the same figure gives the same bytes.

    The second file of a figure has the layout of the first, which takes a third of the time to find.
    """
    with styled():
        figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None)
        figure.set_layout_engine("none")
