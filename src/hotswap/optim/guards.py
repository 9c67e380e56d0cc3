"""What a step's trials must share, and must not change: random numbers and buffers.

All evaluations of one step are of one function, so they see the same dropout masks and the same buffers; and a step
leaves both as one ordinary forward at the start point would have left them. `Guard` keeps what that takes:

    with guard.gradient_pass(θ):    before and after are remembered
        ...
    with guard.trial():             begins where the gradient pass began
        ...
    guard.end()                     and afterwards everything is as the gradient pass left it

Where the gradients were there already, `guard.start_here()` takes the place of the first.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Guard", "Randomness", "roots_of"]


class Randomness:
    """The states of torch's default generators: the CPU's, and those of the devices that the parameters are on."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.devices = sorted({device for device in devices if device.type not in ("cpu", "meta")}, key=str)

    def read(self) -> list[Tensor]:
        """The states now."""
        return [torch.get_rng_state(), *(_module(device).get_rng_state(device) for device in self.devices)]

    def write(self, states: list[Tensor]) -> None:
        """Go back to what was read."""
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:], strict=True):
            _module(device).set_rng_state(state, device)


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)


def roots_of(parameters: Iterable[Tensor]) -> list[nn.Module]:
    """The outermost modules that hold any of the parameters, of all that are alive.

    The optimizer is given parameters only, and a hook that watches which modules are called would be compiled into
    compiled ones, which then compile again. A module's type is asked of its class: some objects, when asked
    themselves, wake up and import half a library.
    """
    wanted = {id(parameter) for parameter in parameters}
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    parents: dict[int, list[nn.Module]] = {}
    for module in alive:
        for child in (vars(module).get("_modules") or {}).values():
            parents.setdefault(id(child), []).append(module)
    waiting = [
        module
        for module in alive
        if any(id(held) in wanted for held in (vars(module).get("_parameters") or {}).values())
    ]
    roots: dict[int, nn.Module] = {}
    seen: set[int] = set()
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            above = parents.get(id(module), [])
            waiting += above
            if not above:
                roots[id(module)] = module
    return list(roots.values())


class Parts(NamedTuple):
    """What of a module and everything inside it a step has to look after."""

    buffers: list[dict[str, Tensor | None]]
    """Where the buffers live."""
    sharded: list[FSDPModule]
    replicas: list[DistributedDataParallel]

    @classmethod
    def of(cls, module: nn.Module) -> Parts:
        """One walk over it."""
        inside = list(module.modules())
        return cls(
            [part._buffers for part in inside],
            [part for part in inside if isinstance(part, FSDPModule)],
            [part for part in inside if isinstance(part, DistributedDataParallel)],
        )


class Place(NamedTuple):
    """Where a buffer lives, and what was there."""

    owner: dict[str, Tensor | None]
    name: str
    tensor: Tensor
    value: Tensor
    """A copy."""


class Guard:
    """Random numbers and buffers of the model that one optimizer trains."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self.module = module
        self._known: tuple[int, ...] = ()
        self._modules: list[nn.Module] = []
        self._randomness = Randomness([])
        self._random: tuple[list[Tensor], list[Tensor]] | None = None
        self._parts: list[Parts] = []
        self._before: list[Place] = []
        self._after: list[Place] = []

    @contextmanager
    def gradient_pass(self, parameters: list[Tensor]) -> Iterator[None]:
        """Remember what is before and after it; of several passes of one step, before the first and after the last."""
        if self._random is None:
            self._survey(parameters)
        before = self._randomness.read() if self._random is None else self._random[0]
        yield
        self._random = before, self._randomness.read()
        self._after = [place for parts in self._parts for place in _read(parts.buffers)]

    def start_here(self, parameters: list[Tensor]) -> None:
        """Where no gradient pass was watched, trials begin, and the step ends, with what is there now."""
        if self._random is not None:
            return
        self._survey(parameters)
        now = self._randomness.read()
        self._random = now, now
        self._after = self._before

    def _survey(self, parameters: list[Tensor]) -> None:
        """What there is to look after; which modules it is in is asked anew when the parameters are others."""
        now = tuple(id(parameter) for parameter in parameters)
        if now != self._known:
            self._known = now
            self._modules = roots_of(parameters)
            self._randomness = Randomness(parameter.device for parameter in parameters)
            if self.module is not None and not any(self.module is module for module in self._modules):
                self._modules.append(self.module)
        self._parts = [Parts.of(module) for module in self._modules]
        self._before = [place for parts in self._parts for place in _read(parts.buffers)]

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Begin where the gradient pass began."""
        if self._random is not None:
            self._randomness.write(self._random[0])
        _write(self._before)
        self._reshard()
        replicas = [replica for parts in self._parts for replica in parts.replicas]
        flags = [(replica.require_forward_param_sync, replica.require_backward_grad_sync) for replica in replicas]
        for replica in replicas:  # a trial exchanges one number, and does not change what is exchanged next
            replica.require_forward_param_sync = replica.require_backward_grad_sync = False
        try:
            yield
        finally:
            for replica, (forward, backward) in zip(replicas, flags, strict=True):
                replica.require_forward_param_sync, replica.require_backward_grad_sync = forward, backward

    def _reshard(self) -> None:
        """What FSDP gathered before the parameters moved is stale, and it would use it again."""
        for parts in self._parts:
            for module in parts.sharded:
                module.reshard()

    def end(self) -> None:
        """Leave everything as the gradient pass left it, except that the parameters have moved."""
        self._reshard()
        if self._random is not None:
            self._randomness.write(self._random[1])
            _write(self._after)
        self._random, self._parts, self._before, self._after = None, [], [], []


def _read(owners: list[dict[str, Tensor | None]]) -> list[Place]:
    """Every buffer, with a copy of it."""
    return [
        Place(owner, name, tensor, tensor.detach().clone())
        for owner in owners
        for name, tensor in owner.items()
        if tensor is not None
    ]


@torch.no_grad()
def _write(places: list[Place]) -> None:
    """The buffers as they were, also where a module has put another tensor in the place of one."""
    for owner, name, tensor, _ in places:
        owner[name] = tensor
    if places:
        torch._foreach_copy_([place.tensor for place in places], [place.value for place in places])
