"""A race in the form in which `torch.distributed.checkpoint` saves and loads optimizers, before a race and after it.

It keeps tensors of the parameters' shapes, and loads those alone that the race which loads has, too. So every race has
the same ones: two tensors of the winner's optimizer, and the average. Everything else is in one text of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from hotswap.errors import CheckpointError
from hotswap.race.processes import is_sharded, local, shared_like
from hotswap.race.snapshots import marked, parameters_of
from hotswap.race.validation import KEY

if TYPE_CHECKING:
    from hotswap.race.contest import Contest
    from hotswap.race.lane import Lane

__all__ = ["entries", "is_distributed", "rebuilt"]

TEXT, SLOTS, AVERAGE = "race", ("first", "second"), "average"

NUMBER, TUPLE, DICTIONARY = "number", "tuple", "dictionary"
"""The keys of dictionaries in the text. Each dictionary has one key: the kind of value that it stands for."""

RACING = (
    "torch.distributed.checkpoint cannot save or load a race that is under way, because its lanes are more than "
    "tensors of the parameters' shapes; let each process save optimizer.state_dict() with torch.save until the race is "
    "over."
)
STRANGE = (
    "torch.distributed.checkpoint cannot save this race, because its winner keeps more than two tensors of each "
    "parameter's shape, or others; let each process save optimizer.state_dict() with torch.save."
)


def entries(contest: Contest, saved: Mapping[str, Any]) -> dict[Any, Any]:
    """The state of each parameter by its number; none where nobody uses `torch.distributed.checkpoint`.

    A race that it cannot save has a sentence as a key, with which it fails.

    saved: all that the race is.
    """
    known = "torch.distributed.checkpoint.state_dict" in sys.modules and dist.is_available() and dist.is_initialized()
    if not known:
        return {}
    if contest.begun and contest.winner is None:
        return {RACING: {}}
    weights = contest.seat.weights
    found: list[dict[str, Any]] = [{} for _ in weights]
    try:
        text = json.dumps(_encoded(_whole(contest, saved, found)) if contest.begun else None)
    except TypeError:
        return {STRANGE: {}}
    average = contest.here.average
    for p, state in zip(weights, found, strict=True):
        for name in SLOTS:
            state.setdefault(name, torch.zeros_like(p, dtype=_exact(p)))
    if average is not None:
        means = average.tensors or [torch.zeros_like(local(p)) for p in weights]
        for p, state, mean in zip(weights, found, means, strict=True):
            state[AVERAGE] = _like(p, mean.to(_exact(p)))
    found[next(number for number, p in enumerate(weights) if p.requires_grad)][TEXT] = text
    return dict(enumerate(found))


def is_distributed(state_dict: Any) -> bool:
    """Whether a state has come through `torch.distributed.checkpoint`, which drops the race's own entry."""
    state = state_dict.get("state") if isinstance(state_dict, Mapping) and KEY not in state_dict else None
    return isinstance(state, Mapping) and any(isinstance(one, Mapping) and TEXT in one for one in state.values())


def rebuilt(contest: Contest, state_dict: Mapping[str, Any]) -> dict[str, Any] | None:
    """All that the race was that has been saved; None if it had not begun.

    Load the model's weights before; the winner's snapshot is taken anew from them.
    """
    names = [name for group in state_dict["param_groups"] for name in group["params"]]
    states = [state_dict["state"].get(name, {}) for name in names]
    text = json.loads(next(one[TEXT] for one in states if TEXT in one))
    if text is None:
        if contest.begun:
            raise CheckpointError(
                "The checkpoint is of a race before its first step, and this one has begun; make it anew."
            )
        return None
    found: dict[str, Any] = _decoded(text)
    winner = found["lanes"][found["winner"]]
    winner["now"]["state"] = _tensors(winner["now"]["state"], contest, contest.lanes[found["winner"]], states)
    if winner["average"] is not None:
        tensors = [local(one[AVERAGE]).to("cpu", copy=True) for one in states] if winner["average"]["count"] else []
        winner["average"]["tensors"] = tensors
    model = contest.seat.saved()
    parts = {"steps": winner["steps"], "model": model, "optimizer": winner["now"]}
    winner["parked"] = {**parts, "average": winner["average"], "scheduler": winner["scheduler"]}
    return {**found, "model": model}


def _whole(contest: Contest, saved: Mapping[str, Any], slots: list[dict[str, Any]]) -> dict[str, Any]:
    """The race without its copies of the model; the tensors of the winner's state are put into the slots."""
    lanes = []
    for lane, one in zip(contest.lanes, saved["lanes"], strict=True):
        average = None if one["average"] is None else {"count": one["average"]["count"]}
        now = {**one["now"], "state": _kinds(contest, lane, slots)} if lane is contest.winner else None
        lanes.append({**one, "parked": None, "now": now, "average": average})
    judged = [None, *saved["judged"][1:]]
    return {**saved, "model": None, "judged_model": None, "judged": judged, "lanes": lanes, "kept_at": contest.step}


def _places(contest: Contest, lane: Lane) -> list[int]:
    """The places of a lane's parameters among those of the race."""
    places = {id(p): place for place, p in enumerate(contest.seat.weights)}
    return [places[id(p)] for p in parameters_of(lane.optimizer)]


def _kinds(contest: Contest, lane: Lane, slots: list[dict[str, Any]]) -> list[Any]:
    """The state of each parameter, with a slot in place of each tensor. Parameters with equal states share an entry."""
    found: dict[str, tuple[list[int], Any]] = {}
    for number, place in enumerate(_places(contest, lane)):
        p, left, kind = contest.seat.weights[place], iter(SLOTS), {}
        for name, value in lane.optimizer.state.get(p, {}).items():
            kind[name] = marked(value) if isinstance(value, Tensor) and not value.ndim else value
            if isinstance(value, Tensor) and value.ndim:
                slot = next(left, None)
                if slot is None or value.shape != p.shape:
                    raise TypeError(name)
                slots[place][slot] = value.detach().to(_exact(p))
                kind[name] = (slot, str(value.dtype).split(".")[1])
        found.setdefault(json.dumps(_encoded(kind)), ([], kind))[0].append(number)
    return [[numbers, kind] for numbers, kind in found.values()]


def _tensors(kinds: list[Any], contest: Contest, lane: Lane, states: list[dict[str, Any]]) -> dict[int, Any]:
    """The winner's state, with the tensors that were loaded."""
    places, found = _places(contest, lane), {}
    for numbers, kind in kinds:
        for number in numbers:
            loaded = states[places[number]]
            found[number] = {
                name: marked(loaded[value[0]].to(getattr(torch, value[1]))) if isinstance(value, tuple) else value
                for name, value in kind.items()
            }
    return found


def _exact(p: Tensor) -> torch.dtype:
    """A type for the winner's state, too, which may be finer than the parameter's."""
    return torch.promote_types(p.dtype, torch.float32)


def _like(p: Any, part: Tensor) -> Tensor:
    """A tensor of which this process has a part, sharded as a parameter is."""
    dims = [getattr(placement, "dim", None) for placement in getattr(p, "placements", ())]
    return shared_like(part, p, dims, p.shape) if is_sharded(p) else part


def _encoded(thing: Any) -> Any:
    """Something as JSON has it.

    Raises:
        TypeError: JSON has nothing like it.
    """
    if isinstance(thing, Mapping):
        return {DICTIONARY: [[key, _encoded(value)] for key, value in thing.items()]}
    if isinstance(thing, tuple):
        return {TUPLE: [_encoded(value) for value in thing]}
    if isinstance(thing, list):
        return [_encoded(value) for value in thing]
    if isinstance(thing, Tensor) and not thing.ndim:
        return {NUMBER: [thing.item(), str(thing.dtype).split(".")[1]]}
    return thing


def _decoded(thing: Any) -> Any:
    """The value that `_encoded` was given."""
    if isinstance(thing, list):
        return [_decoded(value) for value in thing]
    if not isinstance(thing, dict):
        return thing
    ((kind, value),) = thing.items()
    if kind == NUMBER:
        return torch.tensor(value[0], dtype=getattr(torch, value[1]))
    found = [_decoded(one) for one in value]
    return tuple(found) if kind == TUPLE else dict(found)
