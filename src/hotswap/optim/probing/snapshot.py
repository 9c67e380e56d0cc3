"""The surroundings of a step's evaluations: random numbers and buffers.

All evaluations of one step are of one function, so they see the same dropout masks and the same buffers. And a step
leaves both as one ordinary forward at the start point would have left them. `StateSnapshot` keeps what that takes:

    with snapshot.recording(θ):     generators and buffers are copied before and after
        ...                         the gradient pass
    with snapshot.rewound():        they are as they were before it
        ...                         a trial
    snapshot.finish()               they are as they were after it

For gradients that were there already, `snapshot.record_here()` takes the place of the first. A step that has no trials
needs none of it: `snapshot.unrecorded()` copies nothing, and generators and buffers go on by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from hotswap.errors import UnsupportedError
from hotswap.optim.probing.buffers import BufferSnapshot
from hotswap.optim.probing.modules import BufferDict, ModuleFinder, ModuleInventory
from hotswap.optim.user_warnings import warn_of_numbers_between

__all__ = ["RandomState", "StateSnapshot"]

NO_CONTEXT = nullcontext()


class RandomState:
    """The states of torch's default generators, for the CPU and for the devices that the parameters are on.

    The generators themselves are asked: torch's functions around them take several times as long, in every trial.
    """

    def __init__(self) -> None:
        self._devices: set[torch.device] = set()
        self._generators = [torch.default_generator]

    def survey(self, devices: set[torch.device]) -> None:
        """Find the generators of these devices, where they are others than before."""
        if devices != self._devices:
            others = sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)
            self._generators = [torch.default_generator, *(_generator(device) for device in others)]
            self._devices = devices

    def read(self) -> list[Tensor]:
        """The states now."""
        return [generator.get_state() for generator in self._generators]

    def write(self, states: Iterable[Tensor]) -> None:
        """Go back to states that were read."""
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


def _generator(device: torch.device) -> torch.Generator:
    module: Any = torch.get_device_module(device)
    if device.type == "mps":
        found: torch.Generator = module._get_default_mps_generator()
    else:
        found = module.default_generators[device.index]
    return found


class StateSnapshot:
    """Random numbers and buffers of the model that one optimizer trains, before and after the gradient pass."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._finder, self._modules = ModuleFinder(module), ModuleInventory([])
        self._modules_before = self._modules
        self._random = RandomState()
        self._states: tuple[list[Tensor], list[Tensor]] | None = None
        """Of the generators, before and after the gradient pass; None as long as there was none."""
        self._before, self._after = BufferSnapshot(), BufferSnapshot()
        self._resized = self._warned = False

    @property
    def recorded(self) -> bool:
        """Whether a gradient pass was recorded that no step has used yet."""
        return self._states is not None

    def drop(self) -> None:
        """Forget a gradient pass that no step will use."""
        self._states = None

    @contextmanager
    def recording(self, parameters: list[Tensor], *, restart: bool = False) -> Iterator[None]:
        """Around a gradient pass. If one was recorded before, both are passes of one step, unless this is a `restart`:
        trials go back to the moment before the first of them, and the step ends as the last one does."""
        if restart or self._states is None:
            before = self._survey(parameters)
        else:
            before, after = self._states
            if not self._warned and not all(map(torch.equal, self._random.read(), after)):
                self._warned = True
                warn_of_numbers_between()
        versions = [parameter._version for parameter in self._modules.constant]
        self._finder.in_step = True
        try:
            with self._shared_dropout() if self._modules.recurrent else NO_CONTEXT:
                yield
        finally:
            self._finder.in_step = False
        after = self._random.read()
        if versions != [parameter._version for parameter in self._modules.constant]:
            self._modules.refuse_changed(versions)
        self._read_after(parameters)
        self._states = before, after

    def unrecorded(self) -> AbstractContextManager[object]:
        """Around a gradient pass that no trial will repeat; `finish` has to follow."""
        self._states = None
        self._finder.in_step = True
        return NO_CONTEXT

    def buffers(self, parameters: list[Tensor]) -> list[BufferDict]:
        """The dictionaries of buffers of the modules that are looked after, as they are now."""
        self._modules = self._finder.inventory(parameters, self._modules)
        return self._modules.buffers()

    def record_here(self, parameters: list[Tensor]) -> None:
        """The step ends with what is there now, and its trials begin with it, unless a gradient pass was recorded."""
        if self._states is None:
            self._survey(parameters)
        now = self._random.read()
        self._read_after(parameters)
        self._states = now if self._states is None else self._states[0], now

    def _survey(self, parameters: list[Tensor]) -> list[Tensor]:
        """Before a gradient pass: find what has to be looked after, and copy it. Returns the generators' states."""
        self._states = None
        self._random.survey({parameter.device for parameter in parameters})
        states = self._random.read()
        self._modules = self._modules_before = self._finder.inventory(parameters, self._modules)
        for replica in self._modules.replicas:
            if replica._join_config.enable:
                raise UnsupportedError(
                    "A model in join() keeps processes going that have run out of data, but they could not take "
                    "part in a search; give all processes the same number of minibatches."
                )
            if replica.will_sync_module_buffers():  # type: ignore[no-untyped-call]
                replica._sync_buffers()  # type: ignore[no-untyped-call]  # as it would in the forward to come
        if self._modules.flattened:
            raise UnsupportedError(
                "FullyShardedDataParallel, torch's first way of sharding, would show trials the parameters of before; "
                "shard the model with torch.distributed.fsdp.fully_shard."
            )
        owners = self._modules.buffers()
        if owners or self._before.owners:
            self._before.read(owners, parameters)
        return states

    def _read_after(self, parameters: list[Tensor]) -> None:
        """After a gradient pass, which may have made modules, and first buffers of modules that had none."""
        if owners := self._modules_before.buffers():
            self._before.add_empty(owners)
        self._modules = self._finder.inventory_after_pass(parameters, self._modules)
        owners = self._modules.buffers()
        if owners or self._after.owners:
            self._after.read(owners, parameters)
        if owners:
            self._after.note_versions()
            self._resized = self._before.sizes() != self._after.sizes()

    def rewound(self) -> AbstractContextManager[object]:
        """For a trial: go back to the moment before the gradient pass."""
        self._finder.in_step = True
        if self._states is not None:
            self._random.write(self._states[0])
            if self._before.owners:
                self._before.write(resized=self._resized)
        self._drop_stale_weights()
        modules = self._modules
        special = modules.replicas or (modules.recurrent and modules.private_dropout())
        return self._without_exchange() if special else NO_CONTEXT

    @contextmanager
    def _without_exchange(self) -> Iterator[None]:
        """Replicas exchange neither buffers nor gradients in a trial, and what they exchange next stays the same."""
        replicas = self._modules.replicas
        flags = [(replica.require_forward_param_sync, replica.require_backward_grad_sync) for replica in replicas]
        for replica in replicas:
            replica.require_forward_param_sync = replica.require_backward_grad_sync = False
        try:
            with self._shared_dropout():
                yield
        finally:
            for replica, (forward, backward) in zip(replicas, flags, strict=True):
                replica.require_forward_param_sync, replica.require_backward_grad_sync = forward, backward

    def _shared_dropout(self) -> AbstractContextManager[object]:
        """cuDNN's recurrent networks draw masks from a generator that cannot be set back; torch's own do not."""
        if not self._modules.private_dropout():
            return NO_CONTEXT
        without: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=False)
        return without

    def _drop_stale_weights(self) -> None:
        """Drop what torch keeps of weights that have moved since: casts, parametrizations, and what FSDP gathered."""
        torch.clear_autocast_cache()
        parametrize._cache.clear()
        for module in self._modules.sharded:
            module.reshard()

    def finish(self) -> None:
        """At the end of a step: leave generators and buffers as the gradient pass left them."""
        self._finder.in_step = False
        self._drop_stale_weights()
        if self._states is not None:
            self._random.write(self._states[1])
            if self._after.owners:
                self._after.write(resized=self._resized)
                self._after.restore_versions()
        self._states = None
