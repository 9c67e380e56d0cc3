"""Module buffers: copied before and after a gradient pass, and restored as often as there are trials.

On a GPU a few kernel launches do it, however many buffers there are, because the copies stay from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, is_lazy

from hotswap.errors import UnsupportedError
from hotswap.optim.probing.modules import BufferDict, identical
from hotswap.optim.probing.moves.shards import local

__all__ = ["BufferSnapshot", "cannot_be_written"]

LARGE = 2**18  # numbers; running statistics, one per channel, are smaller


@dataclass
class BufferSnapshot:
    """The buffers of some modules, as they were at one moment."""

    owners: list[BufferDict] = field(default_factory=list)
    """The modules' dictionaries of buffers."""
    _counts: list[int] = field(default_factory=list)
    """How many buffers are in each of them."""
    _names: list[str] = field(default_factory=list)
    _tensors: list[Tensor | None] = field(default_factory=list)
    """The buffers themselves: which tensor was in each place."""
    _groups: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)
    """Small buffers of one type on one device, and copies of them."""
    _sizes: list[list[torch.Size]] = field(default_factory=list)
    """The shapes of these copies."""
    _single: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Large buffers, such as tables and masks, and all that are on the CPU, with copies. They are written to only where
    they have changed: that is less to do, and their memory may be a file that was mapped read-only."""
    _versions: tuple[tuple[Tensor, ...], tuple[int, ...]] = ((), ())
    """Tensors, and their version counters when these were read."""
    _uninitialized: bool = False
    """Whether a buffer has no values yet."""

    def read(self, owners: list[BufferDict], parameters: list[Tensor]) -> None:
        """Copy every buffer, except for those that share memory with a parameter: these are the optimizer's."""
        with torch.no_grad():
            self._read(owners, parameters)

    def _read(self, owners: list[BufferDict], parameters: list[Tensor]) -> None:
        names, tensors = _contents(owners)
        unchanged = identical(tensors, self._tensors) and names == self._names and identical(owners, self.owners)
        if not (unchanged and self._fits()):
            self._lay_out(names, tensors, {_memory(parameter) for parameter in parameters} - {None})
            self.owners, self._counts = list(owners), [len(owner) for owner in owners]
            self._names, self._tensors = names, tensors
        for group, copies in self._groups:
            torch._foreach_copy_(copies, group)
        for tensor, copy in self._single:
            copy.copy_(tensor)

    def _fits(self) -> bool:
        """Whether the copies have the shapes that the buffers have now."""
        sizes = ([tensor.shape for tensor in group] for group, _ in self._groups)
        return (
            not self._uninitialized
            and list(sizes) == self._sizes
            and all(tensor.is_same_size(copy) for tensor, copy in self._single)
        )

    def _lay_out(self, names: list[str], tensors: list[Tensor | None], taken: set[int | None]) -> None:
        groups: dict[object, list[Tensor]] = {}
        single: list[tuple[Tensor, Tensor]] = []
        uninitialized = False
        for name, tensor in zip(names, tensors, strict=True):
            if type(tensor) is UninitializedBuffer:
                uninitialized = True
            elif tensor is not None and tensor.is_nested:
                raise UnsupportedError(
                    f"The buffer {name!r} is a nested tensor, of which no copy can be kept to go back to; keep it as "
                    "an attribute that is no buffer, or as several tensors."
                )
            elif tensor is None or cannot_be_written(tensor) or _memory(tensor) in taken:
                continue
            elif tensor.layout is torch.strided and (tensor.numel() > LARGE or tensor.device.type == "cpu"):
                single.append((tensor, torch.empty_like(tensor)))
            else:
                groups.setdefault((type(tensor), tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
        self._single, self._uninitialized = single, uninitialized
        self._groups = [(group, [torch.empty_like(tensor) for tensor in group]) for group in groups.values()]
        self._sizes = [[tensor.shape for tensor in group] for group in groups.values()]

    def add_empty(self, owners: list[BufferDict]) -> None:
        """Owners that are not in this snapshot had no buffers when it was taken: restoring it removes theirs."""
        if len(owners) != len(self.owners):
            new = [owner for owner in owners if not any(owner is known for known in self.owners)]
            self.owners += new
            self._counts += [0] * len(new)

    def write(self, *, resized: bool = False) -> None:
        """Restore every buffer: its values, the tensor itself where it was replaced, and, if some were `resized`
        since, its size."""
        with torch.no_grad():
            self._write(resized)

    def _write(self, resized: bool) -> None:
        names, tensors = _contents(self.owners)
        if not (identical(tensors, self._tensors) and names == self._names):
            self._put_back()
        if resized:
            self._resize()
        for group, copies in self._groups:
            torch._foreach_copy_(group, copies)
        for tensor, copy in self._single:
            if not torch.equal(tensor, copy):
                tensor.copy_(copy)

    def _resize(self) -> None:
        """Give buffers the sizes that they had; some modules choose a buffer's size in their first forward."""
        pairs = [pair for group in self._groups for pair in zip(*group, strict=True)]
        for tensor, copy in (*pairs, *self._single):
            if tensor.shape != copy.shape:
                tensor.resize_(copy.shape)

    def sizes(self) -> list[list[torch.Size]]:
        """The shapes of all copies."""
        return [*self._sizes, [copy.shape for _, copy in self._single]]

    def note_versions(self) -> None:
        """Remember the version counters of all buffers."""
        tensors = (*(tensor for group, _ in self._groups for tensor in group), *(tensor for tensor, _ in self._single))
        self._versions = tensors, tuple(tensor._version for tensor in tensors)

    def restore_versions(self) -> None:
        """Reset the version counters: the values are the same again, so graphs that hold the buffers stay valid."""
        if self._versions[0]:
            torch._C._autograd._unsafe_set_version_counter(*self._versions)
            self._versions = (), ()

    def _put_back(self) -> None:
        places = iter(zip(self._names, self._tensors, strict=True))
        for owner, count in zip(self.owners, self._counts, strict=True):
            saved = dict(islice(places, count))
            owner.clear()
            owner.update(saved)


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


def cannot_be_written(tensor: Tensor) -> bool:
    """Whether no code can write to a tensor: it was made in inference mode, or expanded without memory of its own."""
    if tensor.is_inference():
        return True
    if tensor.layout is not torch.strided:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
