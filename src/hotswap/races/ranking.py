"""The ranking of lanes at the end of a round, and which of them have diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["highest_loss", "ranked"]


def ranked(losses: Sequence[float]) -> list[int]:
    """The places of the losses, the smallest first; those that are not finite are left out.

    Of equal ones the first comes first: lanes are numbered from the largest rate on, and short comparisons favour small
    ones.
    """
    return sorted((place for place, loss in enumerate(losses) if math.isfinite(loss)), key=lambda place: losses[place])


def highest_loss(early: Sequence[float]) -> float:
    """Above which mean loss a lane has diverged: far above the losses of the first steps, when nothing was learned yet.

    That is half of their mean above it, and no less than three times by how much they differ from one another. A
    network that learns nothing stays below.
    """
    mean = sum(early) / len(early)
    spread = sum(abs(loss - mean) for loss in early) / len(early)
    return mean + max(abs(mean) / 2, 3 * spread)
