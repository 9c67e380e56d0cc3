"""How a hot-swapped optimizer's state is laid out in a `state_dict`.

What hot swapping adds is in the first parameter group, under "hotswap", as tensors and plain values: distributed
checkpoints drop further top-level keys, torch casts what is in `state[parameter]` to the parameter's type, and
`torch.load(weights_only=True)` reads nothing else. Distributed checkpoints load into tensors that are there already, so
a fresh optimizer has them all; what belongs to a sharded parameter is sharded the same way.

The bandit's state is stored by the names of its fields, with the bandit's class and the version of its state. Both are
left out, and read as version 1, where the fields are those that all bandits had in hotswap 0.1.0: a distributed
checkpoint must have every key of the optimizer that it is loaded into, so those of before can be loaded, too.

For the same reason an optimizer that searches in every step, and has no guard, has no keys for what others remember:
"untried" and "pace" (see `hotswap.optim.untried`) and "guard" (see `hotswap.optim.guarding`). Those that have them have
them from the start. Where a checkpoint lacks them, loading begins with the first search, or the first snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.arrays import Array
from hotswap.bandits import Bandit
from hotswap.errors import CheckpointError
from hotswap.optim.loading.base import check_saved_base
from hotswap.optim.loading.entry import check_bandit_values, check_entry, check_grid
from hotswap.optim.loading.values import check_list, check_table, refuse, said
from hotswap.optim.probing.moves.low_precision import restore_state
from hotswap.optim.untried import Untried
from hotswap.pacing import PaceState
from hotswap.rewards import Reward
from hotswap.states import arrays_of

__all__ = ["OwnState", "bandit_state", "described", "load_base", "pack", "refuse_other_base", "unpack"]

KEY = "hotswap"
ORIGINAL_FIELDS = {"rewards", "counts", "step"}
NEEDED = ("names", "axes", "bandit", "reward_scale", "in_force", "initial_lr", "masters", "loss_scale")


@dataclass(frozen=True)
class OwnState:
    """What hot swapping adds to the base optimizer's state, as it is stored."""

    bandit: dict[str, Array]
    """The fields of the bandit's state, by name."""
    bandit_kind: str | None
    """The bandit's class; None in checkpoints that do not say."""
    bandit_version: int
    reward_scale: float
    in_force: int
    """The arm that a step without a search applies."""
    initial_lr: float
    masters: dict[int, Tensor]
    """Master weights in float32 of parameters in bfloat16 or float16, by their place."""
    loss_scale: tuple[float, int] | None
    """Its value, and the steps since it last changed."""
    untried: Untried | None
    """The arm that waits for its reward."""
    pace: PaceState | None
    """What decides whether the next step searches; None where every step does."""
    guard: dict[str, Any] | None
    """What the guard remembers, as `Guarding.packed` has it; None where there is none."""
    parts: dict[str, str]
    """Bandit, search, reward and clipping with their settings, as text; empty in checkpoints that do not say."""


def described(parts: Mapping[str, object]) -> dict[str, str]:
    """Each part with its settings, where its text has them: other objects print their address in memory."""
    plain = (int, float, type(None))
    return {
        name: repr(part) if is_dataclass(part) or isinstance(part, plain) else type(part).__name__
        for name, part in parts.items()
    }


def pack(plain: dict[str, Any], arms: Arms, own: OwnState) -> dict[str, Any]:
    """`plain`, the base's state, with our own beside it."""
    first, *others = plain["param_groups"]
    entry = {
        "names": list(arms.names),
        "axes": [[list(v) if isinstance(v, tuple) else v for v in axis] for axis in arms.axes],
        "bandit": {name: torch.from_numpy(np.array(array)) for name, array in own.bandit.items()},
        "reward_scale": torch.tensor([own.reward_scale], dtype=torch.float64),
        "in_force": own.in_force,
        "initial_lr": own.initial_lr,
        "masters": {str(place): value for place, value in own.masters.items()},
        "loss_scale": None if own.loss_scale is None else list(own.loss_scale),
        "parts": own.parts,
    }
    if own.pace is not None or own.guard is not None or own.untried is not None:
        entry["untried"] = None if own.untried is None else list(own.untried)
    if own.pace is not None:
        entry["pace"] = list(own.pace)
    if own.guard is not None:
        entry["guard"] = own.guard
    if own.bandit_version != 1 or set(own.bandit) != ORIGINAL_FIELDS:
        entry |= {"bandit_kind": own.bandit_kind, "bandit_version": own.bandit_version}
    return {**plain, "param_groups": [{**first, KEY: entry}, *others]}


def unpack(state_dict: dict[str, Any], arms: Arms, base: Optimizer, reward: Reward) -> tuple[dict[str, Any], OwnState]:
    """The base's state and our own, checked against what they are to be used with; nothing is changed.

    What is in the bandit's state is left to `bandit_state`.

    Raises:
        CheckpointError: They do not belong to it, or something in them cannot be loaded.
    """
    groups = _groups_in(state_dict)
    first, *others = groups
    if KEY not in first:
        raise CheckpointError(
            f"This state was not saved by a hot-swapped optimizer: its first parameter group has no entry {KEY!r}. "
            "To start from a plain optimizer's state, load it into optimizer.base; distributed checkpoints must be "
            "saved and loaded without flatten_optimizer_state_dict."
        )
    entry = check_table(first[KEY], f"the entry {KEY!r}")
    if missing := set(NEEDED) - set(entry):
        raise CheckpointError(f"The checkpoint is damaged: its entry {KEY!r} lacks {', '.join(sorted(missing))}.")
    check_grid(entry)
    _refuse_other_arms(entry, arms)
    refuse_other_base(groups, base)
    check_entry(entry, arms, base, negative=reward.accepts_negative)
    plain_first = {name: value for name, value in first.items() if name != KEY}
    plain = {**state_dict, "param_groups": [plain_first, *others]}
    own = _own_state(entry)
    check_saved_base(base, plain, nan=bool(own.guard and own.guard["snapshot"]))  # the guard will go back
    return plain, own


def _groups_in(state_dict: object) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer's state, at least one; an error if it is none."""
    if not isinstance(state_dict, Mapping) or "param_groups" not in state_dict:
        found = f"a {type(state_dict).__name__}"
        if isinstance(state_dict, Mapping):
            found += f" with {', '.join(map(repr, list(state_dict)[:5])) or 'nothing in it'}"
        raise CheckpointError(
            f"load_state_dict() was given {found}, which is no optimizer's state: it has no 'param_groups'. Load the "
            "file first, torch.load(path), and pass what optimizer.state_dict() gave."
        )
    groups = check_list(state_dict["param_groups"], "param_groups")
    return [dict(check_table(group, "each of the parameter groups")) for group in groups] or [{}]


def _own_state(entry: Mapping[str, Any]) -> OwnState:
    bandit = {
        name: (tensor.double() if tensor.is_floating_point() else tensor.long()).detach().cpu().numpy().copy()
        for name, tensor in entry["bandit"].items()
    }
    scale, untried, pace = entry["loss_scale"], entry.get("untried"), entry.get("pace")
    return OwnState(
        bandit=bandit,
        bandit_kind=entry.get("bandit_kind"),
        bandit_version=int(entry.get("bandit_version", 1)),
        reward_scale=float(entry["reward_scale"]),
        in_force=int(entry["in_force"]),
        initial_lr=float(entry["initial_lr"]),
        masters={int(place): value for place, value in entry["masters"].items()},
        loss_scale=None if scale is None else (float(scale[0]), int(scale[1])),
        untried=None if untried is None else Untried(int(untried[0]), float(untried[1])),
        pace=None if pace is None else PaceState(int(pace[0]), float(pace[1]), float(pace[2])),
        guard=entry.get("guard"),
        parts=dict(entry.get("parts", {})),
    )


def _refuse_other_arms(entry: Mapping[str, Any], arms: Arms) -> None:
    axes = tuple(tuple(tuple(v) if isinstance(v, list) else v for v in axis) for axis in entry["axes"])
    saved = Arms(tuple(entry["names"]), axes)
    if saved != arms:
        raise CheckpointError(
            f"The checkpoint is of another grid: it has {_shape_of(saved)}, this optimizer {_shape_of(arms)}; "
            "construct the optimizer with the same arms before loading."
        )


def bandit_state(own: OwnState, bandit: Bandit, fresh: Any, arms: int) -> Any:
    """The saved state of a bandit, with the fields of `fresh`, a state before the first step.

    Raises:
        CheckpointError: The saved fields are not those of this bandit, or have other shapes or impossible values.
    """
    same = own.bandit_kind in (None, type(bandit).__name__)  # another bandit's version means nothing to this one
    version, fields = own.bandit_version if same else bandit.state_version, arrays_of(fresh)
    for name in fields.keys() & own.bandit.keys() if version == bandit.state_version else ():
        if own.bandit[name].dtype.kind != fields[name].dtype.kind:
            refuse(f"{name} of the bandit's state", f"of {fields[name].dtype} numbers")
    try:
        learned = bandit.restored(fresh, own.bandit, version)
    except CheckpointError:
        raise
    except Exception as error:  # of a bandit of the user's own, in `migrate`
        raise CheckpointError(
            f"The checkpoint is damaged, or of another bandit: {type(bandit).__name__} cannot read its state "
            f"({said(error)}). Nothing was changed; use the bandit that it was saved with."
        ) from error
    check_bandit_values(arrays_of(learned), fields, bandit.bounds(arms))
    return learned


def refuse_other_base(groups: list[dict[str, Any]], base: Optimizer) -> None:
    """Raise where the groups are those of another optimizer: the base would load them, and fail in its next step."""
    needed = {name for name, value in base.defaults.items() if isinstance(value, float | tuple)}
    for group in groups:
        if missing := needed - group.keys():
            raise CheckpointError(
                f"The checkpoint is of another base optimizer: its parameter groups have no "
                f"{' and no '.join(sorted(missing))}, which {type(base).__name__} needs; construct the optimizer "
                "around the same base before loading."
            )


def load_base(base: Optimizer, plain: dict[str, Any]) -> None:
    """Load the base's state; where the base raises, it is as it was.

    Raises:
        CheckpointError: The base cannot load it.
    """
    before = base.state, base.param_groups
    try:
        base.load_state_dict(plain)
        restore_state(base, plain)
    except BaseException as error:
        base.state, base.param_groups = before
        if not isinstance(error, Exception):
            raise
        raise CheckpointError(
            f"The checkpoint is damaged, or of another base optimizer: {type(base).__name__} cannot load its state "
            f"({said(error)}). Nothing was changed; construct the optimizer around the same base."
        ) from error


def _shape_of(arms: Arms) -> str:
    parts = (
        f"{len(axis)} value{'s' if len(axis) > 1 else ''} of {name} from {axis[0]} to {axis[-1]}"
        for name, axis in zip(arms.names, arms.axes, strict=True)
    )
    return " and ".join(parts)
