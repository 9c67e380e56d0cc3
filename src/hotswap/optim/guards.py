"""What a step's trials must share, and must not change: random numbers and buffers.

All evaluations of one step are of one function, so they see the same dropout masks and the same buffers; and a step
leaves both as one ordinary forward at the start point would have left them. `Guard` keeps what that takes:

    with guard.gradient_pass():     before and after are remembered
        ...
    with guard.trial():             begins where the gradient pass began
        ...
    guard.end()                     and afterwards everything is as the gradient pass left it

Where the gradients were there already, `guard.start_here()` takes the place of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Guard", "Randomness", "Roots"]


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


class Roots:
    """The outermost modules that a closure calls, found while it runs.

    A hook on all modules would end up inside compiled ones and make them compile again. So it takes itself away
    when a first module is called, before anything inside that module runs, and comes back when the call ends.
    """

    def __init__(self, known: nn.Module | None = None) -> None:
        self.modules: list[nn.Module] = [] if known is None else [known]
        self.given = known is not None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look for them here; nothing to do where they are given, or where a hook would be compiled in."""
        if self.given or any(_compiled_in_place(module) for module in self.modules):
            yield
            return
        handles: list[Any] = []

        def watch() -> None:
            handles.append(register_module_forward_pre_hook(entered))

        def entered(module: nn.Module, _: Any) -> None:
            while handles:
                handles.pop().remove()
            if not any(module is known for known in self.modules):
                self.modules.append(module)
                self.found(module)
            handles.append(module.register_forward_hook(left, always_call=True))

        def left(*_: Any) -> None:
            while handles:
                handles.pop().remove()
            watch()

        watch()
        try:
            yield
        finally:
            while handles:
                handles.pop().remove()

    def found(self, module: nn.Module) -> None:
        """Called with a module that is new, before it runs."""


def _compiled_in_place(module: nn.Module) -> bool:
    """Whether `module.compile()` was called: hooks on it are part of what is compiled."""
    return getattr(module, "_compiled_call_impl", None) is not None


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


class Guard(Roots):
    """Random numbers and buffers of one optimizer's model."""

    def __init__(self, devices: Iterable[torch.device], module: nn.Module | None = None) -> None:
        super().__init__(module)
        self.randomness = Randomness(devices)
        self._random: tuple[list[Tensor], list[Tensor]] | None = None
        self._parts: list[Parts] = []
        self._before: list[Place] = []
        self._after: list[Place] = []

    @contextmanager
    def gradient_pass(self) -> Iterator[None]:
        """Remember what is before and after it."""
        before = self.randomness.read()
        self._survey()
        with self.watching():
            yield
        self._random = before, self.randomness.read()
        self._after = [place for parts in self._parts for place in _read(parts.buffers)]

    def start_here(self) -> None:
        """There is no gradient pass to watch: trials begin, and the step ends, with what is there now."""
        now = self.randomness.read()
        self._random = now, now
        self._survey()
        self._after = self._before

    def _survey(self) -> None:
        self._parts = [Parts.of(module) for module in self.modules]
        self._before = [place for parts in self._parts for place in _read(parts.buffers)]

    def found(self, module: nn.Module) -> None:
        """See `Roots.found`: its buffers are still as they were before the step."""
        self._parts.append(Parts.of(module))
        places = _read(self._parts[-1].buffers)
        self._before = [*self._before, *places]
        if self._random is not None:  # in a trial: the gradient pass did not call it
            self._after = [*self._after, *places]

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Begin where the gradient pass began."""
        if self._random is not None:
            self.randomness.write(self._random[0])
        _write(self._before)
        self._reshard()
        replicas = [replica for parts in self._parts for replica in parts.replicas]
        flags = [(replica.require_forward_param_sync, replica.require_backward_grad_sync) for replica in replicas]
        for replica in replicas:  # a trial exchanges one number, and does not change what is exchanged next
            replica.require_forward_param_sync = replica.require_backward_grad_sync = False
        try:
            with self.watching():
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
            self.randomness.write(self._random[1])
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
