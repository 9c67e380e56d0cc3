"""Methods and workloads as readers see them: names, colours, settings, and where the numbers come from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.runs import Result
from hotswap.bench.scores import Score
from hotswap.bench.workloads import WORKLOADS
from hotswap.report.looks import PALETTE, Appearance
from hotswap.report.origin import Origin
from hotswap.report.tables import Grid
from hotswap.studies.algorithms import Look
from hotswap.studies.algorithms.base import DASHES, MARKERS

__all__ = [
    "appearances",
    "configuration_grid",
    "is_ours",
    "label",
    "origins",
    "settings_text",
    "three_digits",
    "title_of",
]

OURS = {
    "#0072B2": "#56b4e9",
    "#D55E00": "#f0883e",
    "#009E73": "#4cc9a0",
    "#CC79A7": "#e08bbd",
    "#332288": "#9d8cf0",
    "#E69F00": "#f2c14e",
}
"""Colours on white and on dark; where there are more of ours, they begin again, with another line."""
OTHERS = tuple(pair for pair in PALETTE if pair[0] not in (*OURS, "#222222"))  # which is too much like the reference


def is_ours(method: str) -> bool:
    """Whether a method is part of this library."""
    return method in METHODS and METHODS[method].ours


def appearances(methods: Iterable[str]) -> dict[str, Appearance]:
    """How each method is drawn, in the order of drawing: what comes later lies on top. No two are alike."""
    names = sorted(set(methods))
    ours = [name for name in names if is_ours(name)]
    others = [name for name in names if not is_ours(name) and name != REFERENCE]
    looks = {name: _look(at, OTHERS, MARKERS[at % len(MARKERS)], layer=0) for at, name in enumerate(others)}
    looks |= {REFERENCE: Look("#000000", "#ffffff", dashes="dashed", layer=1)} if REFERENCE in names else {}
    looks |= {name: _look(at, tuple(OURS.items()), "circle", layer=2) for at, name in enumerate(ours)}
    return {name: Appearance(name, label(name), look, chooses=is_ours(name)) for name, look in looks.items()}


def _look(at: int, colours: tuple[tuple[str, str], ...], marker: Any, *, layer: int) -> Look:
    colour, dark = colours[at % len(colours)]
    dashes = DASHES[at // len(colours) % len(DASHES)]
    filled = layer == 2 or at // len(MARKERS) % 2 == 0
    return Look(colour, dark, marker, size=5, filled=filled, dashes=dashes, layer=layer)


def label(method: str, configuration: str = FIRST) -> str:
    """The title of a method; a configuration other than the first is named after it."""
    title = METHODS[method].title if method in METHODS else method
    return title if configuration == FIRST or method == REFERENCE else f"{title}, {configuration}"


def title_of(workload: str) -> tuple[str, str]:
    """The title of a workload and the name of its validation measure."""
    if workload not in WORKLOADS:
        return workload, "validation"
    return WORKLOADS[workload].title, WORKLOADS[workload].measured


def three_digits(value: float) -> str:
    """A number in a table; nothing where there is none."""
    return "" if math.isnan(value) else f"{value:#.3g}".rstrip(".")


def settings_text(settings: Mapping[str, object]) -> str:
    """`lr 0.1, momentum 0.9`; where there are none, that the defaults hold."""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "the defaults"


def configuration_grid(found: Iterable[Score]) -> Grid:
    """The settings of each method and who recommends them; the reference has other settings on each workload."""
    rows = []
    for method, name in sorted({(score.method, score.configuration) for score in found}):
        if method in METHODS and method != REFERENCE and name in (FIRST, SECOND):
            known = METHODS[method]().configuration(name)
            package = " ".join(METHODS[method].package or ())
            rows.append((label(method, name), settings_text(known.settings), known.source, package))
    headings = ("method", "settings", "who recommends them", "package")
    return Grid("One configuration for all workloads", headings, tuple(rows), left=4)


def origins(results: Iterable[Result]) -> list[Origin]:
    """By machine and versions, what trained the runs."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for origin in (result.origin for result in results if result.origin):
        key = tuple(str(origin.get(name, "?")) for name in ("hotswap", "torch", "python", "device"))
        found.setdefault(key, []).append(origin)
    return [Origin.of(entries, runs=len(entries)) for entries in found.values()]
