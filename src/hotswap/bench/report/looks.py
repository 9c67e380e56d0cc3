"""How methods are called and drawn: ours strong, the reference black, the others thin."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hotswap.bench.methods import FIRST, METHODS
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.workloads import WORKLOADS
from hotswap.report.figures.style import LINES
from hotswap.report.looks import PALETTE

__all__ = ["Look", "label", "looks", "three_digits", "title_of"]

OURS = {
    "#0072B2": "#56b4e9",
    "#D55E00": "#f0883e",
    "#009E73": "#4cc9a0",
    "#CC79A7": "#e08bbd",
    "#332288": "#9d8cf0",
    "#E69F00": "#f2c14e",
}
"""Colours on white and on dark; where there are more of ours, they begin again, with another line."""

NEARLY_BLACK = "#222222"  # too much like the reference

MARKS = ("^", "s", "D", "v", "P", "X", "<", ">", "*")


@dataclass(frozen=True)
class Look:
    """How one method is drawn."""

    colour: str
    width: float
    dashes: Any
    mark: str
    ours: bool = False
    dark: str = ""
    """Its colour on a dark page."""

    def line(self, configuration: str) -> dict[str, Any]:
        """For matplotlib; a second configuration is dotted."""
        dashes = self.dashes if configuration == FIRST or self.mark == "" else LINES[3]
        return {
            "color": self.colour,
            "linewidth": self.width,
            "linestyle": dashes,
            "marker": self.mark or None,
            "markersize": 5 if self.ours else 4,
        }


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A look for each method, in the order of drawing: what comes later lies on top. No two are alike."""
    names = sorted(set(methods))
    ours = [name for name in names if name in METHODS and METHODS[name].ours]
    others = [name for name in names if name not in ours and name != REFERENCE]
    colours = [pair for pair in PALETTE if pair[0] not in (*OURS, NEARLY_BLACK)]
    found = {}
    for at, name in enumerate(others):
        colour, dark = colours[at % len(colours)]
        found[name] = Look(colour, 1.1, LINES[at // len(colours) % 3], MARKS[at % len(MARKS)], dark=dark)
    if REFERENCE in names:
        found[REFERENCE] = Look("#000000", 1.8, LINES[1], "", dark="#ffffff")
    for at, name in enumerate(ours):
        colour, dark = list(OURS.items())[at % len(OURS)]
        found[name] = Look(colour, 2.4, LINES[at // len(OURS) % 3], "o", ours=True, dark=dark)
    return found


def label(method: str, configuration: str = FIRST) -> str:
    """What a method is called, with a mark on its second configuration."""
    title = METHODS[method].title if method in METHODS else method
    return title if configuration == FIRST or method == REFERENCE else f"{title}, {configuration}"


def title_of(workload: str) -> tuple[str, str]:
    """What a workload is, and what is measured."""
    if workload not in WORKLOADS:
        return workload, "validation"
    return WORKLOADS[workload].title, WORKLOADS[workload].measured


def three_digits(value: float) -> str:
    """A number in a table; nothing where there is none."""
    return "" if math.isnan(value) else f"{value:#.3g}".rstrip(".")
