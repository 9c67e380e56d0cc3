"""Numbers for the page: short, and null where they are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["number", "numbers"]


def number(value: float) -> float | None:
    """Six digits are more than anyone can see, and keep the page small."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def numbers(values: Iterable[float]) -> list[float | None]:
    """The same of each."""
    return [number(float(value)) for value in values]
