"""Schedulers around a race: what they make of its rates is a scale, by which the rates of every lane are multiplied."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR
from torch.optim.swa_utils import SWALR

from hotswap.errors import UnsupportedError
from hotswap.race.lane import Lane

__all__ = ["base_of", "momentum_of", "refuse_momentum", "scale_of", "warn_of_rate"]

EACH_LANE = "Race(schedule=function), which makes a scheduler for each lane"


def _refuse_absolute(groups: Sequence[dict[str, Any]]) -> None:
    """Refuse schedulers around a race that set rates of their own, which would be the same for all lanes.

    Raises:
        UnsupportedError: There is one; the error names it.
    """
    for scheduler in _around(groups):
        name = type(scheduler).__name__
        if isinstance(scheduler, OneCycleLR | CyclicLR | SWALR):
            raise UnsupportedError(
                f"{name} around the race sets rates of its own, and all lanes would get the same ones; use a scheduler "
                f"that scales rates, such as CosineAnnealingLR, or give {EACH_LANE}."
            )
        least = {"eta_min": getattr(scheduler, "eta_min", 0), "min_lr": max(getattr(scheduler, "min_lrs", [0]))}
        for setting, value in least.items():
            if value > 0:
                raise UnsupportedError(
                    f"{name}({setting}={value:g}) around the race lets all lanes end at the same rate; write "
                    f"{setting}=0, or give {EACH_LANE}."
                )


def _around(groups: Sequence[dict[str, Any]]) -> Iterator[LRScheduler]:
    """The schedulers of an optimizer with these groups. Optimizers do not know theirs, so all objects are looked at."""
    for one in gc.get_objects():
        if issubclass(type(one), LRScheduler):  # not isinstance, which asks proxies for their class
            optimizer = getattr(one, "optimizer", None)
            if getattr(optimizer, "param_groups", None) is groups:
                yield one


def momentum_of(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings of groups that some schedulers change beside the rate."""
    return [{name: group[name] for name in ("momentum", "betas") if name in group} for group in groups]


def refuse_momentum(groups: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> None:
    """Refuse momentum that a scheduler around a race has changed: lanes have one of their own, or none.

    Raises:
        UnsupportedError: It is not as it was.
    """
    for group, old in zip(groups, before, strict=True):
        for name, value in old.items():
            if group[name] != value:
                raise UnsupportedError(
                    f"A scheduler around the race has changed {name} to {group[name]!r}, and lanes have settings of "
                    f"their own; use one that scales rates alone, or give {EACH_LANE}."
                )


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
    _refuse_absolute(groups)
    start = groups[0].get("initial_lr")
    if start not in (None, shown[0], first.rates[0]):
        raise UnsupportedError(
            f"A scheduler around the race starts at a rate of its own, {start:g}, and all lanes would get the same "
            f"one; use a scheduler that scales rates, or give {EACH_LANE}."
        )
    return here if start in (None, shown[0]) else first


def scale_of(groups: Sequence[dict[str, Any]], base: Lane) -> float:
    """The factor by which the rates of the groups have been multiplied."""
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


def warn_of_rate(rate: float, scale: float) -> None:
    """Tell a program that writes rates, without a scheduler, into a race whose default lanes have their own ones."""
    warnings.warn(
        f"The program writes the rate {rate:g} into the race's param_groups, so the race multiplies the rates of all "
        f"lanes by {scale:.2g}, as a scheduler would. If the rate is meant for your own optimizer, remove the lines "
        "that write it, or race your optimizer beside the default lanes: Race(model, optimizer).",
        UserWarning,
        stacklevel=5,
    )
