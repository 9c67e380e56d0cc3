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
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedBuffer

from hotswap.errors import UnsupportedError

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
    frozen = gc.get_freeze_count() > 0  # objects that were frozen are not listed
    if frozen:
        gc.unfreeze()
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    if frozen:
        gc.freeze()
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


LARGE = 2**18  # numbers; statistics are smaller, one per channel


@dataclass
class Place:
    """Where a buffer lives, what was there, and a copy of it."""

    owner: dict[str, Tensor | None]
    name: str
    tensor: Tensor | None
    value: Tensor | None
    version: int
    """The tensor's, when it had this value."""

    @property
    def untouched(self) -> bool:
        """Whether nobody has written to it since.

        A tensor's version tells, but torch's own batch norm does not count. So it is believed of large buffers only,
        which are tables and masks, and of expanded ones, which cannot be written to.
        """
        assert self.tensor is not None
        steps = zip(self.tensor.stride(), self.tensor.shape, strict=True)
        expanded = any(stride == 0 and size > 1 for stride, size in steps)
        return (expanded or self.tensor.numel() > LARGE) and self.tensor._version == self.version

    @classmethod
    def read(cls, owner: dict[str, Tensor | None], name: str, known: Place | None) -> Place:
        """What is there now; a copy is made only where `known` is not one of the same."""
        tensor = owner[name]
        if tensor is None or isinstance(tensor, UninitializedBuffer):
            return cls(owner, name, tensor, None, 0)
        if known is not None and known.tensor is tensor and known.untouched:
            return known
        return cls(owner, name, tensor, tensor.detach().clone(), tensor._version)


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
        self._copies: dict[tuple[int, str], Place] = {}

    @contextmanager
    def gradient_pass(self, parameters: list[Tensor]) -> Iterator[None]:
        """Remember what is before and after it; of several passes of one step, before the first and after the last."""
        if self._random is None:
            self._survey(parameters)
        before = self._randomness.read() if self._random is None else self._random[0]
        yield
        self._random = before, self._randomness.read()
        self._after = self._read()

    def start_here(self, parameters: list[Tensor]) -> None:
        """The step ends with what is there now, and so do its trials begin, unless a gradient pass was watched."""
        if self._random is None:
            self._survey(parameters)
        now = self._randomness.read()
        self._random = now if self._random is None else self._random[0], now
        self._after = self._read()

    def drop(self) -> None:
        """Forget a gradient pass that no step will come of."""
        self._random, self._parts, self._before, self._after = None, [], [], []

    def _survey(self, parameters: list[Tensor]) -> None:
        """What there is to look after; which modules it is in is asked anew when the parameters are others."""
        now = tuple(id(parameter) for parameter in parameters)
        if now != self._known:
            self._known = now
            self._modules = roots_of(parameters)
            if self.module is not None and not any(self.module is module for module in self._modules):
                self._modules.append(self.module)
        self._randomness = Randomness({parameter.device for parameter in parameters})
        self._parts = [Parts.of(module) for module in self._modules]
        for parts in self._parts:
            for replica in parts.replicas:  # as it would itself, in the forward to come
                if replica._join_config.enable:
                    raise UnsupportedError(
                        "A model in join() keeps processes going that have run out of data, but they could not take "
                        "part in a search; give all processes the same number of minibatches."
                    )
                if replica.will_sync_module_buffers():  # type: ignore[no-untyped-call]
                    replica._sync_buffers()  # type: ignore[no-untyped-call]
        self._before = self._read()

    def _read(self) -> list[Place]:
        """Every buffer as it is; one that nobody writes to is copied once for all steps."""
        now: dict[tuple[int, str], Place] = {}
        for parts in self._parts:
            for owner in parts.buffers:
                for name in owner:
                    key = (id(owner), name)
                    now[key] = Place.read(owner, name, self._copies.get(key))
        self._copies = now
        return list(now.values())

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
        self.drop()


@torch.no_grad()
def _write(places: list[Place]) -> None:
    """The buffers as they were, where anything has changed: also another tensor in the place of one, or none."""
    changed = []
    for place in places:
        place.owner[place.name] = place.tensor
        if place.value is not None and not place.untouched:
            changed.append(place)
    if changed:
        tensors, values = ([getattr(place, name) for place in changed] for name in ("tensor", "value"))
        torch._foreach_copy_(tensors, values)
        for place in changed:
            assert place.tensor is not None  # or it would not have changed
            place.version = place.tensor._version
