"""Buffers: read whole before and after a gradient pass, and written back as often as there are trials.

A few launches do it on a GPU, however many buffers there are, because their copies stay from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, is_lazy

from hotswap.errors import UnsupportedError
from hotswap.optim.guards.modules import Owner, same
from hotswap.optim.moves.shards import local

__all__ = ["Page"]

LARGE = 2**18  # numbers; statistics are smaller, one per channel


@dataclass
class Page:
    """All buffers at one moment."""

    _owners: list[Owner] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    """How many are in each."""
    _names: list[str] = field(default_factory=list)
    _tensors: list[Tensor | None] = field(default_factory=list)
    """What was in each place."""
    _groups: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)
    """Tensors of one kind, and copies of them."""
    _sizes: list[list[torch.Size]] = field(default_factory=list)
    """Theirs."""
    _single: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Tables and masks, and whatever is on the CPU, with copies. They are written to only where they have changed: it
    is less to do, and memory may be read-only, where it is a file's."""
    _versions: tuple[tuple[Tensor, ...], tuple[int, ...]] = ((), ())
    """Of which tensors they are known, and what they were."""
    _empty: bool = False
    """Whether one of them has no values yet."""

    def read(self, owners: list[Owner], parameters: list[Tensor]) -> None:
        """Every buffer as it is, except for those that are parameters, too: these are the optimizer's."""
        if owners or self._owners:
            with torch.no_grad():
                self._read(owners, parameters)

    def _read(self, owners: list[Owner], parameters: list[Tensor]) -> None:
        names, tensors = _contents(owners)
        if not (same(tensors, self._tensors) and names == self._names and same(owners, self._owners) and self._fits()):
            self._lay_out(names, tensors, {_memory(parameter) for parameter in parameters} - {None})
            self._owners, self._counts = list(owners), [len(owner) for owner in owners]
            self._names, self._tensors = names, tensors
        for group, copies in self._groups:
            torch._foreach_copy_(copies, group)
        for tensor, copy in self._single:
            copy.copy_(tensor)

    def _fits(self) -> bool:
        """A buffer may have got another size, or its first values."""
        sizes = ([tensor.shape for tensor in group] for group, _ in self._groups)
        return (
            not self._empty
            and list(sizes) == self._sizes
            and all(tensor.is_same_size(copy) for tensor, copy in self._single)
        )

    def _lay_out(self, names: list[str], tensors: list[Tensor | None], taken: set[int | None]) -> None:
        groups: dict[object, list[Tensor]] = {}
        single: list[tuple[Tensor, Tensor]] = []
        empty = False
        for name, tensor in zip(names, tensors, strict=True):
            if type(tensor) is UninitializedBuffer:
                empty = True
            elif tensor is not None and tensor.is_nested:
                raise UnsupportedError(
                    f"The buffer {name!r} is a nested tensor, of which no copy can be kept to go back to; keep it as "
                    "an attribute that is no buffer, or as several tensors."
                )
            elif tensor is None or _cannot_be_written(tensor) or _memory(tensor) in taken:
                continue
            elif tensor.layout is torch.strided and (tensor.numel() > LARGE or tensor.device.type == "cpu"):
                single.append((tensor, torch.empty_like(tensor)))
            else:
                groups.setdefault((type(tensor), tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
        self._single, self._empty = single, empty
        self._groups = [(group, [torch.empty_like(tensor) for tensor in group]) for group in groups.values()]
        self._sizes = [[tensor.shape for tensor in group] for group in groups.values()]

    def know_empty(self, owners: list[Owner]) -> None:
        """Owners that are not on this page had no buffers when it was read, and have none when it is written."""
        if len(owners) != len(self._owners):
            new = [owner for owner in owners if not any(owner is known for known in self._owners)]
            self._owners += new
            self._counts += [0] * len(new)

    def write(self, *, resized: bool = False) -> None:
        """Every buffer as it was: also another tensor in the place of one, or none; and of its size, where some were
        `resized` since."""
        if self._owners:
            with torch.no_grad():
                self._write(resized)

    def _write(self, resized: bool) -> None:
        names, tensors = _contents(self._owners)
        if not (same(tensors, self._tensors) and names == self._names):
            self._put_back()
        if resized:
            self._resize()
        for group, copies in self._groups:
            torch._foreach_copy_(group, copies)
        for tensor, copy in self._single:
            if not torch.equal(tensor, copy):
                tensor.copy_(copy)

    def _resize(self) -> None:
        """Some modules give a buffer its size in their first forward."""
        pairs = [pair for group in self._groups for pair in zip(*group, strict=True)]
        for tensor, copy in (*pairs, *self._single):
            if tensor.shape != copy.shape:
                tensor.resize_(copy.shape)

    def sizes(self) -> list[list[torch.Size]]:
        """Of all copies."""
        return [*self._sizes, [copy.shape for _, copy in self._single]]

    def note_versions(self) -> None:
        """How often each was written to, by now."""
        tensors = (*(tensor for group, _ in self._groups for tensor in group), *(tensor for tensor, _ in self._single))
        self._versions = tensors, tuple(tensor._version for tensor in tensors)

    def restore_versions(self) -> None:
        """As if nobody had written since: nothing has changed, and graphs that hold them are none the worse."""
        if self._versions[0]:
            torch._C._autograd._unsafe_set_version_counter(*self._versions)
            self._versions = (), ()

    def _put_back(self) -> None:
        places = iter(zip(self._names, self._tensors, strict=True))
        for owner, count in zip(self._owners, self._counts, strict=True):
            saved = dict(islice(places, count))
            owner.clear()
            owner.update(saved)


def _contents(owners: list[Owner]) -> tuple[list[str], list[Tensor | None]]:
    return [name for owner in owners for name in owner], [tensor for owner in owners for tensor in owner.values()]


def _memory(tensor: Tensor) -> int | None:
    """Where a tensor's numbers are; None where that is nowhere in particular."""
    tensor = local(tensor)
    if tensor.layout is not torch.strided or is_lazy(tensor):
        return None
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # made of other tensors
        return None


def _cannot_be_written(tensor: Tensor) -> bool:
    """Nobody else could either: made in inference mode, or expanded, with several numbers in one place."""
    if tensor.is_inference():
        return True
    if tensor.layout is not torch.strided:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
