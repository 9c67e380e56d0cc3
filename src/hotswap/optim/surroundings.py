"""The surroundings of a step's evaluations: random numbers, and the buffers of modules.

All evaluations of one step are of one function, so they see the same dropout masks and the same buffers. And a step
leaves both as one ordinary forward at the start point would have left them. `Surroundings` keeps what that takes:

    with surroundings.recording(θ):     generators and buffers are copied before and after
        ...                             the gradient pass
    with surroundings.rewound():        they are as they were before it
        ...                             a trial
    surroundings.finish()               they are as they were after it

For gradients that were there already, `surroundings.record_here(θ)` takes the place of the first. A step that has no
trials needs none of it: after `surroundings.drop(in_step=True)`, generators and buffers go on by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, is_lazy
from torch.nn.utils import parametrize

from hotswap.errors import UnsupportedError
from hotswap.optim.modules import BufferDict, ModuleFinder, ModuleInventory, identical
from hotswap.optim.processes import local
from hotswap.optim.user_warnings import warn_of_numbers_between

__all__ = ["BufferSnapshot", "RandomState", "Surroundings"]

DEVICE_OF = attrgetter("device")

LARGE = 2**18
"""Numbers in a buffer; running statistics, one per channel, are smaller."""

NO_CONTEXT = nullcontext()


class Surroundings:
    """Random numbers and buffers of the model that one optimizer trains, before and after the gradient pass."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._finder = ModuleFinder(module)
        self._modules = self._modules_before = self._finder.known
        self._random = RandomState()
        self._states: tuple[list[Tensor], list[Tensor]] | None = None
        """The generators' states before and after the gradient pass; None as long as there was none."""
        self._before, self._after = BufferSnapshot(), BufferSnapshot()
        self._resized = self._warned = False

    @property
    def recorded(self) -> bool:
        """Whether a gradient pass was recorded that no step has used yet."""
        return self._states is not None

    def drop(self, *, in_step: bool = False) -> None:
        """Forget a gradient pass that no trial will repeat; inside of a step, `finish` has to follow."""
        self._states, self._finder.in_step = None, in_step

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
        modules = self._modules
        versions = [parameter._version for parameter in modules.constant] if modules.constant else []
        self._finder.in_step = True
        try:
            with self._shared_dropout(modules) if modules.recurrent else NO_CONTEXT:
                yield
        finally:
            self._finder.in_step = False
        if versions and versions != [parameter._version for parameter in modules.constant]:
            modules.refuse_changed(versions)
        self._states = before, self._read_after(parameters)

    def record_here(self, parameters: list[Tensor]) -> None:
        """The step ends with what is there now, and its trials begin with it, unless a gradient pass was recorded."""
        before = self._survey(parameters) if self._states is None else self._states[0]
        self._states = before, self._read_after(parameters)

    def _survey(self, parameters: list[Tensor]) -> list[Tensor]:
        """Before a gradient pass: find everything to look after, and copy it. Returns the generators' states."""
        self._states = None
        states = self._random.read(parameters)
        modules = self._modules = self._modules_before = self._finder.inventory(parameters)
        for replica in modules.replicas:
            if replica._join_config.enable:
                raise UnsupportedError(
                    "A model in join() keeps processes going that have run out of data, but they could not take "
                    "part in a search; give all processes the same number of minibatches."
                )
            if replica.will_sync_module_buffers():  # type: ignore[no-untyped-call]
                replica._sync_buffers()  # type: ignore[no-untyped-call]  # as it would in the forward to come
        if modules.flattened:
            raise UnsupportedError(
                "FullyShardedDataParallel, torch's first way of sharding, would show trials the parameters of before; "
                "shard the model with torch.distributed.fsdp.fully_shard."
            )
        owners = modules.buffers()
        if owners or self._before.owners:
            self._before.read(owners, parameters)
        return states

    def _read_after(self, parameters: list[Tensor]) -> list[Tensor]:
        """Record the buffers after a gradient pass, which may have made modules, or modules' first buffers.

        Returns the generators' states.
        """
        before = self._modules_before
        owners = before.buffers()
        if len(owners) != len(self._before.owners):
            self._before.add_empty(owners)
        self._modules = self._finder.inventory(parameters, after_pass=True)
        if self._modules is not before:
            owners = self._modules.buffers()
        if owners or self._after.owners:
            self._after.read(owners, parameters)
        if owners:
            self._after.note_versions()
            self._resized = self._before.sizes != self._after.sizes
        return self._random.read()

    def rewound(self) -> AbstractContextManager[object]:
        """Go back, for a trial, to the moment before the gradient pass."""
        self._finder.in_step = True
        if self._states is not None:
            self._random.write(self._states[0])
            if self._before.owners:
                self._before.write(resized=self._resized)
        self._drop_stale_weights()
        modules = self._modules
        return self._without_exchange(modules) if modules.replicas or modules.recurrent else NO_CONTEXT

    @contextmanager
    def _without_exchange(self, modules: ModuleInventory) -> Iterator[None]:
        """Replicas exchange neither buffers nor gradients in a trial, and their next exchange stays the same."""
        replicas = modules.replicas
        flags = [(replica.require_forward_param_sync, replica.require_backward_grad_sync) for replica in replicas]
        for replica in replicas:
            replica.require_forward_param_sync = replica.require_backward_grad_sync = False
        try:
            with self._shared_dropout(modules):
                yield
        finally:
            for replica, (forward, backward) in zip(replicas, flags, strict=True):
                replica.require_forward_param_sync, replica.require_backward_grad_sync = forward, backward

    @staticmethod
    def _shared_dropout(modules: ModuleInventory) -> AbstractContextManager[object]:
        """cuDNN's recurrent networks draw masks from a generator that cannot be set back; torch's own do not."""
        if not modules.private_dropout():
            return NO_CONTEXT
        without: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=False)
        return without

    def _drop_stale_weights(self) -> None:
        """Drop copies that torch keeps of weights that have moved: casts, parametrizations, gathered shards."""
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


# --- random numbers ---------------------------------------------------------------------------------------------------


class RandomState:
    """The states of torch's default generators, for the CPU and for the devices that the parameters are on.

    The generators themselves are asked: torch's functions around them take several times as long, in every trial.
    """

    def __init__(self) -> None:
        self._devices: set[torch.device] = set()
        self._generators = [torch.default_generator]

    def read(self, parameters: list[Tensor] | None = None) -> list[Tensor]:
        """The states now, of the devices of these parameters; by default of the devices of before."""
        if parameters is not None:
            devices = set(map(DEVICE_OF, parameters))
            if devices != self._devices:
                others = sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)
                self._generators = [torch.default_generator, *(_generator(device) for device in others)]
                self._devices = devices
        return list(map(torch.Generator.get_state, self._generators))

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


# --- buffers ----------------------------------------------------------------------------------------------------------


class BufferSnapshot:
    """The buffers of some modules, as they were at one moment.

    On a GPU a few kernel launches restore them, however many there are, because the copies stay from step to step.
    """

    def __init__(self) -> None:
        self.owners: list[BufferDict] = []
        """The modules' dictionaries of buffers."""
        self._counts: list[int] = []
        """The number of buffers in each of them."""
        self._names: list[str] = []
        self._tensors: list[Tensor | None] = []
        """The buffers themselves: which tensor was in each place."""
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []
        """Small buffers of one type on one device, and copies of them."""
        self._single: list[tuple[Tensor, Tensor]] = []
        """Large buffers, such as tables and masks, and all that are on the CPU, with copies. They are written to only
        where they have changed: that is less to do, and their memory may be a file that was mapped read-only."""
        self._pairs: list[tuple[Tensor, Tensor]] = []
        """All of these buffers with their copies."""
        self.sizes: list[torch.Size] = []
        """The shapes of all copies."""
        self._versions: tuple[tuple[Tensor, ...], tuple[int, ...]] = ((), ())
        """Tensors, and their version counters when these were read."""
        self._uninitialized = False
        """Whether a buffer has no values yet."""

    def read(self, owners: list[BufferDict], parameters: list[Tensor]) -> None:
        """Copy every buffer, except for those that share memory with a parameter: these are the optimizer's."""
        names, tensors = _contents(owners)
        unchanged = identical(tensors, self._tensors) and names == self._names and identical(owners, self.owners)
        fits = not self._uninitialized and [tensor.shape for tensor, _ in self._pairs] == self.sizes
        if not (unchanged and fits):
            self._lay_out(names, tensors, {_memory(parameter) for parameter in parameters} - {None})
            self.owners, self._counts = list(owners), [len(owner) for owner in owners]
            self._names, self._tensors = names, tensors
        with torch.set_grad_enabled(False):
            for group, copies in self._groups:
                torch._foreach_copy_(copies, group)
            for tensor, copy in self._single:
                copy.copy_(tensor)

    def _lay_out(self, names: list[str], tensors: list[Tensor | None], taken: set[int | None]) -> None:
        groups: dict[object, list[Tensor]] = {}
        self._single, self._uninitialized = [], False
        for name, tensor in zip(names, tensors, strict=True):
            if type(tensor) is UninitializedBuffer:
                self._uninitialized = True
            elif tensor is not None and tensor.is_nested:
                raise UnsupportedError(
                    f"The buffer {name!r} is a nested tensor, of which no copy can be kept to go back to; keep it as "
                    "an attribute that is no buffer, or as several tensors."
                )
            elif tensor is None or _cannot_be_written(tensor) or _memory(tensor) in taken:
                continue
            elif tensor.layout is torch.strided and (tensor.numel() > LARGE or tensor.device.type == "cpu"):
                self._single.append((tensor, torch.empty_like(tensor)))
            else:
                groups.setdefault((type(tensor), tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
        self._groups = [(group, [torch.empty_like(tensor) for tensor in group]) for group in groups.values()]
        self._pairs = [*(pair for group in self._groups for pair in zip(*group, strict=True)), *self._single]
        self.sizes = [copy.shape for _, copy in self._pairs]

    def add_empty(self, owners: list[BufferDict]) -> None:
        """Owners that are not in this snapshot had no buffers when it was taken: restoring it removes theirs."""
        new = [owner for owner in owners if not any(owner is known for known in self.owners)]
        self.owners += new
        self._counts += [0] * len(new)

    def write(self, *, resized: bool = False) -> None:
        """Restore every buffer: its values, the tensor itself where it was replaced, and, if some were `resized`
        since, its size."""
        names, tensors = _contents(self.owners)
        if not (identical(tensors, self._tensors) and names == self._names):
            places = iter(zip(self._names, self._tensors, strict=True))
            for owner, count in zip(self.owners, self._counts, strict=True):
                saved = dict(islice(places, count))
                owner.clear()
                owner.update(saved)
        with torch.set_grad_enabled(False):
            if resized:  # some modules choose a buffer's size in their first forward
                for tensor, copy in self._pairs:
                    if tensor.shape != copy.shape:
                        tensor.resize_(copy.shape)
            for group, copies in self._groups:
                torch._foreach_copy_(group, copies)
            for tensor, copy in self._single:
                if not torch.equal(tensor, copy):
                    tensor.copy_(copy)

    def note_versions(self) -> None:
        """Remember the version counters of all buffers."""
        tensors = tuple([tensor for tensor, _ in self._pairs])
        self._versions = tensors, tuple([tensor._version for tensor in tensors])

    def restore_versions(self) -> None:
        """Reset the version counters: the values are the same again, so graphs that hold the buffers stay valid."""
        if self._versions[0]:
            torch._C._autograd._unsafe_set_version_counter(*self._versions)
            self._versions = (), ()


def _contents(owners: list[BufferDict]) -> tuple[list[str], list[Tensor | None]]:
    return [name for owner in owners for name in owner], [tensor for owner in owners for tensor in owner.values()]


def _memory(tensor: Tensor) -> int | None:
    """The address of a tensor's memory; None where it has no memory of its own."""
    tensor = local(tensor)
    if tensor.layout is not torch.strided or is_lazy(tensor):
        return None
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # a wrapper around other tensors
        return None


def _cannot_be_written(tensor: Tensor) -> bool:
    """Whether no code can write to a tensor: it was made in inference mode, or expanded without memory of its own."""
    if tensor.is_inference():
        return True
    if tensor.layout is not torch.strided:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
