"""Copies in the host's memory of all that a lane is: weights, buffers, the optimizer's state, the average."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.race.memory import hosted
from hotswap.race.processes import is_sharded, local, shared_like

__all__ = [
    "Host",
    "blank",
    "copied",
    "marked",
    "on_host",
    "parameters_of",
    "restore_optimizer",
    "saved_optimizer",
    "size_of",
    "takes_step_without_data",
]

Host = Callable[[Tensor, Any], Tensor]

NUMBER = "number on the device"
"""Marks a tensor without dimensions, such as a counter of steps, which was on the device and not on the host."""

PART = "part of a sharded tensor"
"""Marks the part that this process has of a sharded tensor, beside its placement."""

ON_ANY_DEVICE = {"fused": None, "capturable": False}
"""Settings of torch's optimizers with which they take steps without data."""

PLAIN = (int, float, complex, bool, str, bytes, type(None))

TORCHS = frozenset(vars(Optimizer([torch.zeros(0)], {})))
"""Attributes of every optimizer: its state and groups, which need a rule of their own, and its hooks."""


def copied(thing: Any, copy: Callable[[Tensor, Any], Any], old: Any = None) -> Any:
    """The same nest of containers, whose tensors are copies; an earlier copy, `old`, gives its memory."""
    if isinstance(thing, Tensor):
        return copy(thing, old)
    if isinstance(thing, dict):
        earlier = old if isinstance(old, dict) else {}
        return {key: copied(value, copy, earlier.get(key)) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        before = old if isinstance(old, list | tuple) and len(old) == len(thing) else [None] * len(thing)
        return type(thing)(copied(value, copy, one) for value, one in zip(thing, before, strict=True))
    return thing


def marked(tensor: Any, old: Any = None, host: Host = hosted) -> Any:
    """A copy in the host's memory, marked where it says too little of the tensor."""
    earlier = old if isinstance(old, dict) else {}
    if is_sharded(tensor):
        dims = [getattr(placement, "dim", None) for placement in tensor.placements]
        return {PART: host(tensor, earlier.get(PART)), "dims": dims, "shape": list(tensor.shape)}
    if tensor.is_cuda and not tensor.ndim:
        return {NUMBER: host(tensor, earlier.get(NUMBER))}
    return host(tensor, old)


def _restored(saved: Any, beside: Tensor, present: Any) -> Any:
    """The values behind `marked` copies, on the device of a parameter, in the memory of `present` where it fits."""
    if isinstance(saved, Tensor):
        where = beside.device if saved.ndim else torch.device("cpu")  # counters of steps may stay on the host
        return _written(saved, present, where)
    if isinstance(saved, dict):
        if NUMBER in saved:
            return _written(saved[NUMBER], present, beside.device)
        if PART in saved:
            old = local(present) if is_sharded(present) and list(present.shape) == saved["shape"] else None
            part = _written(saved[PART], old, beside.device)
            return present if part is old else shared_like(part, beside, saved["dims"], saved["shape"])
        earlier = present if isinstance(present, dict) else {}
        return {key: _restored(value, beside, earlier.get(key)) for key, value in saved.items()}
    if isinstance(saved, list | tuple):
        before = present if isinstance(present, list | tuple) and len(present) == len(saved) else [None] * len(saved)
        return type(saved)(_restored(value, beside, one) for value, one in zip(saved, before, strict=True))
    return saved


def _written(saved: Tensor, present: Any, where: torch.device) -> Tensor:
    if isinstance(present, Tensor) and present.shape == saved.shape and present.dtype == saved.dtype:
        return present.copy_(saved, non_blocking=True)
    return saved.to(where, copy=True, non_blocking=True)


def on_host(thing: Any) -> Any:
    """The same nest of containers, whose tensors are new copies in the host's memory."""
    return copied(thing, lambda tensor, _: hosted(tensor))


def size_of(thing: Any) -> int:
    """The bytes of the tensors in a nest of containers, as far as this process has them."""
    sizes: list[int] = []
    copied(thing, lambda tensor, _: sizes.append(local(tensor).numel() * tensor.element_size()))
    return sum(sizes)


def saved_optimizer(optimizer: Optimizer, old: dict[str, Any] | None = None, host: Host = hosted) -> dict[str, Any]:
    """All that changes in an optimizer while it trains, as plain containers with tensors in the host's memory.

    host: copies a tensor there.
    """
    numbers = {id(p): number for number, p in enumerate(parameters_of(optimizer))}
    now = {
        "state": {numbers[id(p)]: state for p, state in optimizer.state.items() if id(p) in numbers},
        "shared": {key: value for key, value in optimizer.state.items() if not isinstance(key, Tensor)},
        "groups": [{name: v for name, v in group.items() if name != "params"} for group in optimizer.param_groups],
        "attributes": _attributes(optimizer),
    }
    before = (old or {}).get("inner", {})
    inner = {name: saved_optimizer(one, before.get(name), host) for name, one in wrapped(optimizer)}
    return {**copied(now, partial(marked, host=host), old), "inner": inner}


def _attributes(optimizer: Optimizer) -> dict[str, Any]:
    return {name: v for name, v in vars(optimizer).items() if name not in TORCHS and _is_plain(v)}


def wrapped(optimizer: Optimizer) -> list[tuple[str, Optimizer]]:
    """The optimizers that an optimizer is around, such as Lookahead's."""
    return [(name, one) for name, one in vars(optimizer).items() if isinstance(one, Optimizer)]


def restore_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Bring an optimizer back to a saved state; its tensors get new memory on the device of their parameter."""
    parameters = parameters_of(optimizer)
    kept = set(saved["state"])
    for number, p in enumerate(parameters):
        if number not in kept:
            optimizer.state.pop(p, None)
        else:
            optimizer.state[p] = _restored(saved["state"][number], p, optimizer.state.get(p))
    keys: list[object] = list(optimizer.state)  # torch's types know tensors alone
    for key in keys:
        if not isinstance(key, Tensor) and key not in saved["shared"]:
            optimizer.state.pop(key)  # type: ignore[call-overload]
    for key, value in saved["shared"].items():
        optimizer.state[key] = _restored(value, parameters[0], optimizer.state.get(key))
    for group, values in zip(optimizer.param_groups, saved["groups"], strict=True):
        for name in group.keys() - values.keys() - {"params"}:
            del group[name]
        group.update(_restored(values, parameters[0], dict(group)))
    for name, one in wrapped(optimizer):
        restore_optimizer(one, saved["inner"][name])
    for name, value in saved["attributes"].items():
        setattr(optimizer, name, _restored(value, parameters[0], getattr(optimizer, name, None)))


def blank(tensor: Tensor) -> Tensor:
    """A tensor like this process's part of another one, without data."""
    return torch.empty_like(local(tensor), device="meta")


def takes_step_without_data(optimizer: Optimizer, saved: dict[str, Any] | None = None) -> bool:
    """Whether a copy of an optimizer, whose tensors have no data, takes a step: from nothing, or from a saved state.

    Where it does from nothing, the other answer says whether a state has the entries and the shapes that it needs.
    """
    if wrapped(optimizer) or any(map(is_sharded, parameters_of(optimizer))):
        return False
    try:
        made = _copy_without_data(optimizer)
        if saved is not None:
            restore_optimizer(made, _without_data(saved))
        for group in made.param_groups:
            group.update({name: value for name, value in ON_ANY_DEVICE.items() if name in group})
        step: Any = type(made).step
        with torch.no_grad(), torch.random.fork_rng([]):
            getattr(step, "__wrapped__", step)(made)  # without hooks
    except Exception:  # whatever an optimizer does with a state that is not its own, or with tensors without data
        return False
    return True


def _copy_without_data(optimizer: Optimizer) -> Any:
    """A copy of an optimizer before its first step, which shares nothing with it that a step could change.

    It has no hooks, and none of the modules and functions that the optimizer knows: a step might train them.
    """
    own = type(optimizer).__getstate__ is not Optimizer.__getstate__
    kept: dict[str, Any] = {**vars(optimizer), **(optimizer.__getstate__() if own else {})}
    blanks: dict[int, Any] = {}
    copied(_attributes(optimizer), lambda tensor, _: blanks.setdefault(id(tensor), _without_data(tensor)))
    for p in parameters_of(optimizer):
        blanks[id(p)] = blank(p).requires_grad_()
        blanks[id(p)].grad = torch.empty_like(blanks[id(p)])
    hooks = {name: type(value)() for name, value in kept.items() if name in TORCHS and name.endswith("_hooks")}
    rest = {name: value for name, value in kept.items() if name not in {*hooks, "state"} and not callable(value)}
    made: Any = object.__new__(type(optimizer))
    vars(made).update({**hooks, **deepcopy(rest, blanks), "state": defaultdict(dict)})
    return made


def _without_data(saved: Any) -> Any:
    """The same nest of containers without data, but in numbers such as counters of steps."""
    if isinstance(saved, dict) and NUMBER in saved:
        return _without_data(saved[NUMBER])
    if isinstance(saved, dict):
        return {key: _without_data(value) for key, value in saved.items()}
    return copied(saved, lambda tensor, _: blank(tensor) if tensor.ndim else tensor.clone())


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All parameters of an optimizer, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _is_plain(value: object) -> bool:
    """Whether a value consists of numbers, texts, tensors and containers of them alone."""
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return isinstance(value, PLAIN) or (isinstance(value, Tensor) and not isinstance(value, torch.nn.Parameter))
