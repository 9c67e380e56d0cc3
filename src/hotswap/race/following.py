"""Schedulers around a race: what they make of its rates is a scale, by which the rates of every lane are multiplied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hotswap.errors import UnsupportedError
from hotswap.race.lane import Lane

__all__ = ["base_of", "scale_of"]

ABSOLUTE = {"max_lr": "OneCycleLR", "swa_lr": "SWALR"}
"""What schedulers leave in a group that set rates of their own."""


def base_of(groups: Sequence[dict[str, Any]], shown: Sequence[Any], first: Lane, here: Lane) -> Lane:
    """The lane from whose rates a scheduler, or the user, goes on: the one whose rates the race shows.

    Raises:
        UnsupportedError: The scheduler has set rates of its own, which would be the same for all lanes.
    """
    if here.scheduler is not None:
        raise UnsupportedError(
            "Race(schedule=function) makes a scheduler for each lane, and a scheduler around the race sets its rates "
            "as well; leave one of them out."
        )
    start = groups[0].get("initial_lr")
    own = [name for key, name in ABSOLUTE.items() if key in groups[0]]
    if own or start not in (None, shown[0], first.rates[0]):
        raise UnsupportedError(
            f"{own[0] if own else 'A scheduler such as CyclicLR'} around the race sets rates of its own, and all lanes "
            "would get the same ones; use a scheduler that scales rates, such as CosineAnnealingLR, or give "
            "Race(schedule=function), which makes a scheduler for each lane."
        )
    return here if start in (None, shown[0]) else first


def scale_of(groups: Sequence[dict[str, Any]], base: Lane) -> float:
    """What the rates of the groups have been multiplied with."""
    found = []
    for number, group in enumerate(groups):
        rate = base.rates[number if len(base.rates) == len(groups) else 0]
        if rate and group.get("lr") is not None:
            found.append(float(group["lr"]) / rate)
    if any(not math.isclose(scale, found[0], rel_tol=1e-6) for scale in found):
        raise UnsupportedError(
            f"The rates of the race's groups were multiplied with different factors ({found[0]:.4g} and others), "
            "and lanes have groups of their own; multiply all with the same one."
        )
    return found[0] if found else 1.0
