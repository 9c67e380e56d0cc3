"""Checkpoints of a hot-swapped optimizer: the base's state, with our own in its first parameter group.

It is there under "hotswap", as tensors and plain values: distributed checkpoints drop further top-level keys, torch
casts the values in `state[parameter]` to the parameter's type, and `torch.load(weights_only=True)` reads nothing else.
Distributed checkpoints load into tensors that are there already, and need every key of the optimizer that they are
loaded into, so a fresh optimizer has all keys.

Everything in a checkpoint is checked before anything of it is loaded. A damage is one sentence, a
`hotswap.CheckpointError`. `hotswap.optim.loading` has the checks of the base's part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.arrays import Array
from hotswap.errors import CheckpointError
from hotswap.optim.loading import (
    check_list,
    check_number,
    check_saved_base,
    check_table,
    check_tensor,
    refuse,
    said,
)
from hotswap.optim.memory import NO_STEPS, Memory, Untried
from hotswap.optim.user_warnings import warn_of_other_parts
from hotswap.pacing import PaceState
from hotswap.states import arrays_of

if TYPE_CHECKING:
    from hotswap.optim.hotswap import HotSwap

__all__ = ["load", "pack"]

KEY, FORMAT = "hotswap", 2
LONG = 2**62  # a count of steps that leaves room for more
NEEDED = {
    *("names", "axes", "bandit", "bandit_kind", "bandit_version", "reward_scale", "in_force", "initial_lr"),
    *("loss_scale", "untried", "pace", "parts"),
}


def pack(optimizer: HotSwap) -> dict[str, Any]:
    """The base's state, with our own beside it."""
    memory, scale, arms = optimizer._memory, optimizer._loss_scale, optimizer.arms
    memory.catch_up(optimizer.bandit, optimizer.reward)
    searches_always = optimizer._pace.every == 1 and optimizer.search.tries
    entry = {
        "format": FORMAT,
        "names": list(arms.names),
        "axes": [[list(v) if isinstance(v, tuple) else v for v in axis] for axis in arms.axes],
        "bandit": {name: torch.from_numpy(np.array(array)) for name, array in arrays_of(memory.bandit).items()},
        "bandit_kind": type(optimizer.bandit).__name__,
        "bandit_version": optimizer.bandit.state_version,
        "reward_scale": torch.tensor([memory.reward_scale], dtype=torch.float64),
        "in_force": memory.in_force,
        "initial_lr": optimizer._trials.move.initial_lr,
        "loss_scale": None if scale is None else [scale.value, scale.good],
        "untried": None if memory.untried is None else list(memory.untried),
        "pace": None if searches_always else list(memory.pace),
        "parts": _parts(optimizer),
    }
    plain = optimizer.base.state_dict()
    first, *others = plain["param_groups"]
    return {**plain, "param_groups": [{**first, KEY: entry}, *others]}


def _parts(optimizer: HotSwap) -> dict[str, str]:
    """Each part with its settings, where its text has them: other objects print their address in memory."""
    parts: dict[str, object] = {"bandit": optimizer.bandit, "search": optimizer.search, "reward": optimizer.reward}
    parts |= {"clip_norm": optimizer._clipping.norm, "clip_value": optimizer._clipping.value}
    if optimizer._pace.every != 1:
        parts["pace"] = optimizer._pace
    plain = (int, float, type(None))
    return {
        name: repr(part) if is_dataclass(part) or isinstance(part, plain) else type(part).__name__
        for name, part in parts.items()
    }


def load(optimizer: HotSwap, state_dict: Mapping[str, Any]) -> None:
    """Go on from a checkpoint; one that does not belong to the optimizer is refused, and changes nothing."""
    plain, entry = _unpacked(state_dict)
    fresh, parts = optimizer._fresh_bandit_state(), _parts(optimizer)
    found, initial_lr, loss_scale, saved = _read(entry, optimizer, fresh)
    _refuse_other_base(plain["param_groups"], optimizer.base)
    check_saved_base(optimizer.base, plain)
    warn_of_other_parts(saved, parts)
    optimizer._setters.to(found.in_force)  # the user's functions; where one raises, they set back what they have set
    try:
        _load_base(optimizer.base, plain)
    except BaseException:
        optimizer._setters.back()
        raise
    optimizer._setters.keep()
    memory = optimizer._memory
    if saved.get("pace") != parts.get("pace"):  # another pace begins with a search
        found.pace = NO_STEPS
    found.searched = not _equal(found.bandit, fresh)
    found.top, found.search_with = memory.top, memory.search_with
    vars(memory).update(vars(found))
    optimizer._trials.move.initial_lr = initial_lr
    if optimizer._loss_scale is not None and loss_scale is not None:
        optimizer._loss_scale.value, optimizer._loss_scale.good = loss_scale


def _unpacked(state_dict: object) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The base's state, and our own entry, which has all that it needs and is of the format of today."""
    if not isinstance(state_dict, Mapping) or "param_groups" not in state_dict:
        found = f"a {type(state_dict).__name__}"
        if isinstance(state_dict, Mapping):
            found += f" with {', '.join(map(repr, list(state_dict)[:5])) or 'nothing in it'}"
        raise CheckpointError(
            f"load_state_dict() was given {found}, which is no optimizer's state: it has no 'param_groups'. Load the "
            "file first, torch.load(path), and pass what optimizer.state_dict() gave."
        )
    groups = check_list(state_dict["param_groups"], "param_groups")
    groups = [dict(check_table(group, "each of the parameter groups")) for group in groups] or [{}]
    if KEY not in groups[0]:
        raise CheckpointError(
            f"This state was not saved by a hot-swapped optimizer: its first parameter group has no entry {KEY!r}. "
            "To start from a plain optimizer's state, load it into optimizer.base; distributed checkpoints must be "
            "saved and loaded without flatten_optimizer_state_dict."
        )
    entry = check_table(groups[0].pop(KEY), f"the entry {KEY!r}")
    if "format" not in entry and NEEDED & entry.keys():
        raise CheckpointError(
            "The checkpoint was written by an earlier version of hotswap, whose format is not read any more; load the "
            "model's weights alone, and let the optimizer begin anew."
        )
    if missing := NEEDED - set(entry):
        raise CheckpointError(f"The checkpoint is damaged: its entry {KEY!r} lacks {', '.join(sorted(missing))}.")
    check_number(entry["format"], "format", FORMAT, FORMAT, whole=True)
    return {**state_dict, "param_groups": groups}, entry


def _refuse_other_base(groups: list[dict[str, Any]], base: Optimizer) -> None:
    """Raise where the groups are those of another optimizer: the base would load them, and fail in its next step."""
    needed = {name for name, value in base.defaults.items() if isinstance(value, float | tuple)}
    for group in groups:
        if missing := needed - group.keys():
            raise CheckpointError(
                f"The checkpoint is of another base optimizer: its parameter groups have no "
                f"{' and no '.join(sorted(missing))}, which {type(base).__name__} needs; construct the optimizer "
                "around the same base before loading."
            )


# --- our own entry ----------------------------------------------------------------------------------------------------


def _read(
    entry: Mapping[str, Any], optimizer: HotSwap, fresh: Any
) -> tuple[Memory, float, tuple[float, int] | None, dict[str, str]]:
    """Our own state, checked: what is remembered, the initial rate, the loss scale and the steps since it changed, and
    the texts of the parts. `fresh` is a state of the bandit before the first step.
    """
    _check_grid(entry, optimizer.arms)
    last = len(optimizer.arms) - 1
    loss_scale = untried = None
    pace = NO_STEPS
    if entry["loss_scale"] is not None:
        value, good = check_list(entry["loss_scale"], "loss_scale", 2)
        value = check_number(value, "the value of loss_scale", 1)
        loss_scale = value, check_number(good, "the steps of loss_scale", 0, LONG, whole=True)
    if entry["untried"] is not None:
        arm, loss = check_list(entry["untried"], "untried", 2)
        arm = check_number(arm, "the arm of untried", 0, last, whole=True)
        least = -math.inf if optimizer.reward.accepts_negative else 0.0
        untried = Untried(arm, check_number(loss, "the loss of untried", least))
    if entry["pace"] is not None:
        since, *means = check_list(entry["pace"], "pace", 3)
        since = check_number(since, "the steps of pace", -1, LONG, whole=True)
        pace = PaceState(since, *(check_number(mean, "a mean of pace") for mean in means))
    parts = check_table(entry["parts"], "parts")
    if not all(isinstance(word, str) for item in parts.items() for word in item):
        refuse("parts", "words by name")
    initial_lr = check_number(entry["initial_lr"], "initial_lr", 0)
    if initial_lr == 0:
        refuse("initial_lr", "above zero")
    reward_scale = check_number(entry["reward_scale"], "reward_scale", 0)
    in_force = check_number(entry["in_force"], "in_force", 0, last, whole=True)
    bandit = _read_bandit(entry, optimizer, fresh)
    return Memory(bandit, reward_scale, in_force, untried=untried, pace=pace), initial_lr, loss_scale, dict(parts)


def _check_grid(entry: Mapping[str, Any], arms: Arms) -> None:
    """The names of what is swapped and its values are plain, and those of the optimizer."""
    names, axes = check_list(entry["names"], "names"), check_list(entry["axes"], "axes")
    if not all(isinstance(name, str) for name in names):
        refuse("names", "a list of words")
    if not axes or len(axes) != len(names):
        refuse("axes", "a list of values for each of the names")
    for axis in axes:
        for value in check_list(axis, "each of the axes") or (None,):
            for number in value if isinstance(value, list | tuple) else (value,):
                check_number(number, "a value in axes")
    saved = Arms(tuple(names), tuple(tuple(tuple(v) if isinstance(v, list) else v for v in axis) for axis in axes))
    if saved != arms:
        raise CheckpointError(
            f"The checkpoint is of another grid: it has {_shape_of(saved)}, this optimizer {_shape_of(arms)}; "
            "construct the optimizer with the same arms before loading."
        )


def _shape_of(arms: Arms) -> str:
    parts = (
        f"{len(axis)} value{'s' if len(axis) > 1 else ''} of {name} from {axis[0]} to {axis[-1]}"
        for name, axis in zip(arms.names, arms.axes, strict=True)
    )
    return " and ".join(parts)


def _read_bandit(entry: Mapping[str, Any], optimizer: HotSwap, fresh: Any) -> Any:
    """The saved state of the bandit, with the fields of `fresh`."""
    bandit, fields = optimizer.bandit, arrays_of(fresh)
    saved: dict[str, Array] = {}
    for name, tensor in check_table(entry["bandit"], "the bandit's state").items():
        check_tensor(tensor, f"{name} of the bandit's state")
        if not isinstance(name, str) or tensor.dtype.itemsize == 1:  # bool, and eight bits
            refuse("the bandit's state", "numbers of at least 16 bits, by name")
        kind = tensor.double() if tensor.is_floating_point() else tensor.long()
        saved[name] = kind.detach().cpu().numpy().copy()
    if not isinstance(entry["bandit_kind"], str):
        refuse("bandit_kind", "the name of a class")
    version = check_number(entry["bandit_version"], "bandit_version", 1, LONG, whole=True)
    if entry["bandit_kind"] != type(bandit).__name__:  # another bandit's version means nothing to this one
        version = bandit.state_version
    for name in fields.keys() & saved.keys() if version == bandit.state_version else ():
        if saved[name].dtype.kind != fields[name].dtype.kind:
            refuse(f"{name} of the bandit's state", f"of {fields[name].dtype} numbers")
    try:
        learned = bandit.restored(fresh, saved, version)
    except CheckpointError:
        raise
    except Exception as error:  # a bandit of the user's own raised it in `migrate`
        raise CheckpointError(
            f"The checkpoint is damaged, or of another bandit: {type(bandit).__name__} cannot read its state "
            f"({said(error)}). Nothing was changed; use the bandit that it was saved with."
        ) from error
    bounds = bandit.bounds(len(optimizer.arms))
    for name, array in arrays_of(learned).items():
        where, values = f"{name} of the bandit's state", np.asarray(array)
        if np.isfinite(np.asarray(fields[name])).all() and not np.isfinite(values).all():
            refuse(where, "finite")
        least, most = bounds.get(name, (-math.inf, math.inf))
        if not ((values >= least) & (values <= most) | ~np.isfinite(values)).all():
            refuse(where, f"from {least:g} to {most:g}")
    return learned


# --- the base's state -------------------------------------------------------------------------------------------------


def _load_base(base: Optimizer, plain: dict[str, Any]) -> None:
    """Load the base's state; where the base raises, it is as it was."""
    before = base.state, base.param_groups
    try:
        base.load_state_dict(plain)
    except BaseException as error:
        base.state, base.param_groups = before
        if not isinstance(error, Exception):
            raise
        raise CheckpointError(
            f"The checkpoint is damaged, or of another base optimizer: {type(base).__name__} cannot load its state "
            f"({said(error)}). Nothing was changed; construct the optimizer around the same base."
        ) from error


def _equal(state: Any, other: Any) -> bool:
    """Whether two states of a bandit have the same values."""
    arrays: dict[str, Array] = arrays_of(other)
    return all(bool((array == arrays[name]).all()) for name, array in arrays_of(state).items())
