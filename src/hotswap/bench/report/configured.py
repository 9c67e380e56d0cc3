"""What each method was given, and who recommends that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.report.looks import label
from hotswap.bench.scores import Score

__all__ = ["Configured", "configurations", "settings_text"]


class Configured(NamedTuple):
    """One configuration of a method, in words."""

    label: str
    package: str
    settings: str
    source: str


def configurations(found: Iterable[Score]) -> list[Configured]:
    """Those that have been trained, but for the reference's, which are the workloads' own."""
    rows = []
    for method, name in sorted({(score.method, score.configuration) for score in found}):
        if method in METHODS and method != REFERENCE and name in (FIRST, SECOND):
            known = METHODS[method]().configuration(name)
            package = " ".join(METHODS[method].package or ())
            rows.append(Configured(label(method, name), package, settings_text(known.settings), known.source))
    return rows


def settings_text(settings: Mapping[str, object]) -> str:
    """`lr 0.1, momentum 0.9`; where there are none, that the defaults hold."""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "the defaults"
