"""What hot swapping adds to the base optimizer's state, checked before it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.arrays import Array
from hotswap.errors import CheckpointError
from hotswap.optim.loading.base import check_base
from hotswap.optim.loading.values import check_list, check_number, check_table, check_tensor, refuse

__all__ = ["check_bandit_values", "check_entry", "check_grid"]

LONG = 2**62  # a count of steps that leaves room for more


def check_grid(entry: Mapping[str, Any]) -> None:
    """The names of what is swapped and its values are plain; whether they are the right ones is for others to say."""
    names, axes = check_list(entry["names"], "names"), check_list(entry["axes"], "axes")
    if not all(isinstance(name, str) for name in names):
        refuse("names", "a list of words")
    if not axes or len(axes) != len(names):
        refuse("axes", "a list of values for each of the names")
    for axis in axes:
        values = check_list(axis, "each of the axes")
        for value in values or (None,):
            for number in value if isinstance(value, list | tuple) else (value,):
                check_number(number, "a value in axes")


def check_entry(entry: Mapping[str, Any], arms: Arms, base: Optimizer, *, negative: bool) -> None:
    """All but the names and axes, see `check_grid`, and the values of the bandit's state, see `check_bandit_values`.

    Args:
        entry: What hot swapping has added.
        arms: Of the optimizer that loads it.
        base: Its base optimizer.
        negative: Whether a loss below zero means anything to its reward.

    Raises:
        CheckpointError: Something in it cannot be loaded.
    """
    last, lowest = len(arms) - 1, -math.inf if negative else 0.0
    for name, tensor in check_table(entry["bandit"], "the bandit's state").items():
        check_tensor(tensor, f"{name} of the bandit's state")
        if not isinstance(name, str) or tensor.dtype.itemsize == 1:  # bool, and eight bits
            refuse("the bandit's state", "numbers of at least 16 bits, by name")
    kind = entry.get("bandit_kind")
    if not (kind is None or isinstance(kind, str)):
        refuse("bandit_kind", "the name of a class")
    check_number(entry.get("bandit_version", 1), "bandit_version", 1, LONG, whole=True)
    check_number(entry["reward_scale"], "reward_scale", 0)
    check_number(entry["in_force"], "in_force", 0, last, whole=True)
    check_number(entry["initial_lr"], "initial_lr", 0)
    if float(entry["initial_lr"]) == 0:
        refuse("initial_lr", "above zero")
    _check_masters(entry["masters"], _parameters(base), "masters")
    if entry["loss_scale"] is not None:
        value, good = check_list(entry["loss_scale"], "loss_scale", 2)
        check_number(value, "the value of loss_scale", 1)
        check_number(good, "the steps of loss_scale", 0, LONG, whole=True)
    if entry.get("untried") is not None:
        arm, loss = check_list(entry["untried"], "untried", 2)
        check_number(arm, "the arm of untried", 0, last, whole=True)
        check_number(loss, "the loss of untried", lowest)
    if entry.get("pace") is not None:
        since, *means = check_list(entry["pace"], "pace", 3)
        check_number(since, "the steps of pace", -1, LONG, whole=True)
        for mean in means:
            check_number(mean, "a mean of pace")
    if entry.get("guard") is not None:
        _check_guard(check_table(entry["guard"], "guard"), arms, base, lowest)
    for name, part in check_table(entry.get("parts", {}), "parts").items():
        if not (isinstance(name, str) and isinstance(part, str)):
            refuse("parts", "words by name")


def _parameters(base: Optimizer) -> list[Tensor]:
    return [parameter for group in base.param_groups for parameter in group["params"]]


def _check_masters(masters: object, parameters: list[Tensor], where: str) -> None:
    for place, value in _by_place(masters, len(parameters), where).items():
        shape = None if is_lazy(parameters[place]) else tuple(parameters[place].shape)
        check_tensor(value, f"{where} of parameter {place}", shape, floating=True)


def _by_place(table: object, count: int, where: str) -> dict[int, Any]:
    """What belongs to parameters, by their places, which are stored as words."""
    known, places = check_table(table, where), {str(place): place for place in range(count)}
    if not all(isinstance(name, str) and name in places for name in known):
        refuse(where, f"by the places of {count} parameters, from '0' on")
    return {places[name]: value for name, value in known.items()}


def _check_guard(guard: Mapping[str, Any], arms: Arms, base: Optimizer, least: float) -> None:
    for name in ("state", "rollbacks", "written", "snapshot"):
        if name not in guard:
            refuse("guard", f"a dictionary with the key {name!r}")
    steps, above, mean, lowest, kept, ceiling = check_list(guard["state"], "the guard's state", 6)
    check_number(steps, "the steps of the guard's state", -1, LONG, whole=True)
    check_number(above, "the steps above of the guard's state", 0, LONG, whole=True)
    check_number(mean, "the mean of the guard's state", least, finite=False)  # infinite where the first loss was
    check_number(lowest, "the lowest mean of the guard's state", least)
    check_number(kept, "the kept mean of the guard's state", least)
    check_number(ceiling, "the ceiling of the guard's state", 0, arms.row - 1, whole=True)
    check_number(guard["rollbacks"], "the guard's rollbacks", 0, LONG, whole=True)
    if not all(isinstance(name, str) for name in check_list(guard["written"], "the guard's written")):
        refuse("the guard's written", "a list of words")
    if snapshot := check_table(guard["snapshot"], "the guard's snapshot"):
        _check_snapshot(snapshot, base)


def _check_snapshot(snapshot: Mapping[str, Any], base: Optimizer) -> None:
    """A snapshot may be older than the last parameters and groups."""
    whose, parameters = "of the guard's snapshot", _parameters(base)
    for name in ("parameters", "state", "groups", "masters", "buffers"):
        if name not in snapshot:
            refuse("the guard's snapshot", f"a dictionary with the key {name!r}")
    kept = check_table(snapshot["parameters"], f"parameters {whose}")
    if set(kept) != {str(place) for place in range(len(kept))} or len(kept) > len(parameters):
        refuse(f"parameters {whose}", f"at most {len(parameters)}, by their places from '0' on")
    for place, owner in enumerate(parameters[: len(kept)]):
        check_tensor(kept[str(place)], f"parameter {place} {whose}", tuple(owner.shape), floating=True)
    groups = check_list(snapshot["groups"], f"groups {whose}")
    check_base(base, groups, _by_place(snapshot["state"], len(kept), f"state {whose}"), whose, nan=True)
    _check_masters(snapshot["masters"], parameters[: len(kept)], f"masters {whose}")
    for name, buffer in check_table(snapshot["buffers"], f"buffers {whose}").items():
        check_tensor(buffer, f"a buffer {whose}")
        if not isinstance(name, str):
            refuse(f"buffers {whose}", "by name")
    check_table(snapshot.get("loose", {}), f"loose {whose}")


def check_bandit_values(arrays: Mapping[str, Array], fresh: Mapping[str, Array], bounds: Mapping[str, Any]) -> None:
    """The values of a bandit's state, in the fields that it has now: finite where those of a fresh state are.

    bounds: the least and the greatest value of a field, see `Bandit.bounds`.
    """
    for name, array in arrays.items():
        where = f"{name} of the bandit's state"
        values = np.asarray(array)
        if np.isfinite(np.asarray(fresh[name])).all() and not np.isfinite(values).all():
            refuse(where, "finite")
        least, most = bounds.get(name, (-math.inf, math.inf))
        if not ((values >= least) & (values <= most) | ~np.isfinite(values)).all():
            raise CheckpointError(
                f"The checkpoint is damaged: {where} must be from {least:g} to {most:g}. Nothing was changed; load "
                "another one."
            )
