"""Buffers: read whole before and after a gradient pass, and written back as often as there are trials.

Two launches do it on a GPU, however many buffers there are, because their copies stay from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer

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

    _places: list[tuple[Owner, str, Tensor | None]] = field(default_factory=list)
    """Where each lives, and which tensor was there."""
    _shapes: list[torch.Size] = field(default_factory=list)
    _groups: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)
    """Tensors of one kind, and copies of them."""
    _tables: dict[int, Table] = field(default_factory=dict)

    def read(self, owners: list[Owner], other: Page) -> None:
        """Every buffer as it is; tables that `other` has copied are not copied again."""
        if owners or self._places:
            with torch.no_grad():
                self._read(owners, other)

    def _read(self, owners: list[Owner], other: Page) -> None:
        places = [(owner, name, tensor) for owner in owners for name, tensor in owner.items()]
        if not _same(places, self._places):
            self._places, self._shapes = places, []
        filled = [t for *_, t in places if t is not None and type(t) is not UninitializedBuffer]
        shapes = [tensor.shape for tensor in filled]
        if shapes != self._shapes:  # also where a buffer has just got its first values
            self._shapes = shapes
            self._lay_out(filled)
        for group, copies in self._groups:
            torch._foreach_copy_(copies, group)
        for key, table in self._tables.items():
            if not table.untouched:
                known = other._tables.get(key)
                fresh = known is not None and known.tensor is table.tensor and known.untouched
                self._tables[key] = known if known is not None and fresh else Table.of(table.tensor)

    def _lay_out(self, tensors: list[Tensor]) -> None:
        groups: dict[object, list[Tensor]] = {}
        self._tables = {}
        for tensor in tensors:
            if _expanded(tensor) or tensor.numel() > LARGE:
                self._tables[id(tensor)] = Table(tensor, tensor, -1)  # to be copied
            else:
                groups.setdefault((type(tensor), tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
        self._groups = [(group, [torch.empty_like(tensor) for tensor in group]) for group in groups.values()]

    def write(self) -> None:
        """Every buffer as it was: also another tensor in the place of one, or none."""
        if self._places:
            with torch.no_grad():
                self._write()

    def _write(self) -> None:
        for owner, name, tensor in self._places:
            if name not in owner or owner[name] is not tensor:
                owner[name] = tensor
        for group, copies in self._groups:
            torch._foreach_copy_(group, copies)
        for table in self._tables.values():
            table.write()


def _same(places: list[Any], others: list[Any]) -> bool:
    """Not only equal."""
    return len(places) == len(others) and all(
        a[2] is b[2] and a[1] == b[1] and a[0] is b[0] for a, b in zip(places, others, strict=True)
    )


def _expanded(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
