"""The ranking of lanes at the end of a round, and which of them have diverged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

__all__ = ["FIRST", "highest_loss", "nearest", "ranked", "typical"]

FIRST = 10
"""How many losses at the beginning say what a network that has not learned has."""


def ranked(losses: Sequence[float], highest: float = math.inf) -> list[int]:
    """The places of the losses, the smallest first; those that are not finite or above `highest` are left out.

    Of equal ones the first comes first: lanes are numbered from the largest rate on, and short comparisons favour small
    ones.
    """
    left = (place for place, loss in enumerate(losses) if math.isfinite(loss) and loss <= highest)
    return sorted(left, key=lambda place: losses[place])


def typical(losses: Iterable[float]) -> float:
    """The median of the lanes' losses in one step, of those that are finite; NaN where none is."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    return median(finite) if finite else math.nan


def highest_loss(early: Sequence[float]) -> float:
    """Above which mean loss a lane has diverged: far above the losses of the first steps, when nothing was learned yet.

    That is half of their mean above it, and no less than three times by how much they differ from one another. A
    network that learns nothing stays below.
    """
    mean = sum(early) / len(early)
    spread = sum(abs(loss - mean) for loss in early) / len(early)
    return mean + max(abs(mean) / 2, 3 * spread)


def nearest(rates: Sequence[float], rate: float) -> int:
    """The lane that leads before any was judged: the one whose rate is nearest to the base optimizer's own."""
    return min(range(len(rates)), key=lambda lane: abs(math.log(rates[lane] / rate)))
