"""Buffers: read whole before and after a gradient pass, and written back as often as there are trials.

Two launches do it on a GPU, however many buffers there are, because their copies stay from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer

from hotswap.optim.guards.modules import same

__all__ = ["Page"]

Owner = dict[str, Tensor | None]
LARGE = 2**18  # numbers; statistics are smaller, one per channel


@dataclass
class Table:
    """A buffer that is not copied as long as nobody writes to it, as its version tells.

    torch's own batch norm writes without counting, so versions are believed of large buffers only, which are tables and
    masks, and of expanded ones, which cannot be written to.
    """

    tensor: Tensor
    value: Tensor
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> Table:
        """With a copy of it."""
        return cls(tensor, tensor.detach().clone(), tensor._version)

    @property
    def untouched(self) -> bool:
        """Whether nobody has written to it since."""
        return self.tensor._version == self.version

    def write(self) -> None:
        """Back to what was copied."""
        if not self.untouched:
            self.tensor.copy_(self.value)
            self.version = self.tensor._version


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
    _tables: dict[int, Table] = field(default_factory=dict)
    _empty: bool = False
    """Whether one of them has no values yet."""

    def read(self, owners: list[Owner], other: Page) -> None:
        """Every buffer as it is; tables that `other` has copied are not copied again."""
        if owners or self._owners:
            with torch.no_grad():
                self._read(owners, other)

    def _read(self, owners: list[Owner], other: Page) -> None:
        names, tensors = _contents(owners)
        if not (same(tensors, self._tensors) and names == self._names and same(owners, self._owners) and self._fits()):
            self._owners, self._counts = list(owners), [len(owner) for owner in owners]
            self._names, self._tensors = names, tensors
            self._lay_out()
        for group, copies in self._groups:
            torch._foreach_copy_(copies, group)
        for key, table in self._tables.items():
            if not table.untouched:
                known = other._tables.get(key)
                fresh = known is not None and known.tensor is table.tensor and known.untouched
                self._tables[key] = known if known is not None and fresh else Table.of(table.tensor)

    def _fits(self) -> bool:
        """A buffer may have got another size, or its first values."""
        sizes = (all(map(Tensor.is_same_size, group, copies)) for group, copies in self._groups)
        return not self._empty and all(sizes)

    def _lay_out(self) -> None:
        groups: dict[object, list[Tensor]] = {}
        self._tables, self._empty = {}, False
        for tensor in self._tensors:
            if type(tensor) is UninitializedBuffer:
                self._empty = True
            elif tensor is not None and (_expanded(tensor) or tensor.numel() > LARGE):
                self._tables[id(tensor)] = Table(tensor, tensor, -1)  # to be copied
            elif tensor is not None:
                groups.setdefault((type(tensor), tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
        self._groups = [(group, [torch.empty_like(tensor) for tensor in group]) for group in groups.values()]

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
        for table in self._tables.values():
            table.write()

    def _put_back(self) -> None:
        places = iter(zip(self._names, self._tensors, strict=True))
        for owner, count in zip(self._owners, self._counts, strict=True):
            owner.update(islice(places, count))


def _contents(owners: list[Owner]) -> tuple[list[str], list[Tensor | None]]:
    return [name for owner in owners for name in owner], [tensor for owner in owners for tensor in owner.values()]


def _expanded(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
