"""Buffers: read whole before and after a gradient pass, and written back as often as there are trials.

A few launches do it on a GPU, however many buffers there are, because their copies stay from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer

from hotswap.errors import UnsupportedError
from hotswap.optim.guards.modules import Owner, same

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
    _large: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Tables and masks with copies. They are written to only where they have changed: other graphs may hold them."""
    _empty: bool = False
    """Whether one of them has no values yet."""

    def read(self, owners: list[Owner]) -> None:
        """Every buffer as it is."""
        if owners or self._owners:
            with torch.no_grad():
                self._read(owners)

    def _read(self, owners: list[Owner]) -> None:
        names, tensors = _contents(owners)
        if not (same(tensors, self._tensors) and names == self._names and same(owners, self._owners) and self._fits()):
            self._lay_out(names, tensors)
            self._owners, self._counts = list(owners), [len(owner) for owner in owners]
            self._names, self._tensors = names, tensors
        for group, copies in self._groups:
            torch._foreach_copy_(copies, group)
        for tensor, copy in self._large:
            copy.copy_(tensor)

    def _fits(self) -> bool:
        """A buffer may have got another size, or its first values."""
        sizes = ([tensor.shape for tensor in group] for group, _ in self._groups)
        return (
            not self._empty
            and list(sizes) == self._sizes
            and all(tensor.is_same_size(copy) for tensor, copy in self._large)
        )

    def _lay_out(self, names: list[str], tensors: list[Tensor | None]) -> None:
        groups: dict[object, list[Tensor]] = {}
        large: list[tuple[Tensor, Tensor]] = []
        empty = False
        for name, tensor in zip(names, tensors, strict=True):
            if type(tensor) is UninitializedBuffer:
                empty = True
            elif tensor is not None and tensor.is_nested:
                raise UnsupportedError(
                    f"The buffer {name!r} is a nested tensor, of which no copy can be kept to go back to; keep it as "
                    "an attribute that is no buffer, or as several tensors."
                )
            elif tensor is None or _cannot_be_written(tensor):
                continue
            elif tensor.numel() > LARGE and tensor.layout is torch.strided:
                large.append((tensor, torch.empty_like(tensor)))
            else:
                groups.setdefault((type(tensor), tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
        self._large, self._empty = large, empty
        self._groups = [(group, [torch.empty_like(tensor) for tensor in group]) for group in groups.values()]
        self._sizes = [[tensor.shape for tensor in group] for group in groups.values()]

    def know_empty(self, owners: list[Owner]) -> None:
        """Owners that are not on this page had no buffers when it was read, and have none when it is written."""
        if len(owners) != len(self._owners):
            new = [owner for owner in owners if not any(owner is known for known in self._owners)]
            self._owners += new
            self._counts += [0] * len(new)

    def write(self) -> None:
        """Every buffer as it was: also another tensor in the place of one, or none."""
        if self._owners:
            with torch.no_grad():
                self._write()

    def _write(self) -> None:
        names, tensors = _contents(self._owners)
        if not (same(tensors, self._tensors) and names == self._names):
            self._put_back()
        for group, copies in self._groups:
            torch._foreach_copy_(group, copies)
        for tensor, copy in self._large:
            if not torch.equal(tensor, copy):
                tensor.copy_(copy)

    def _put_back(self) -> None:
        places = iter(zip(self._names, self._tensors, strict=True))
        for owner, count in zip(self._owners, self._counts, strict=True):
            saved = dict(islice(places, count))
            owner.clear()
            owner.update(saved)


def _contents(owners: list[Owner]) -> tuple[list[str], list[Tensor | None]]:
    return [name for owner in owners for name in owner], [tensor for owner in owners for tensor in owner.values()]


def _cannot_be_written(tensor: Tensor) -> bool:
    """Nobody else could either: made in inference mode, or expanded, with several numbers in one place."""
    if tensor.is_inference():
        return True
    if tensor.layout is not torch.strided:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
