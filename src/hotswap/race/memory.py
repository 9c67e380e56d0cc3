"""Memory of the host: how much is free, and blocks of it in which a lane is parked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from hotswap.race.processes import local

__all__ = ["Blocks", "Room", "free_memory", "hosted", "pinned"]

LARGEST = 2**28
"""Bytes of a block, if no single tensor needs more."""

GRAIN = 64
"""Tensors begin at multiples of so many bytes."""

FILLED = 0.9
"""The part of the free memory that parked lanes may take."""


class Blocks:
    """Pinned memory for the tensors of a lane, in blocks of a power of two.

    A GPU copies to and from pinned memory while the host goes on. Torch rounds each block of it up to a power of two,
    so a block for each tensor would waste up to half of it, and to pin many blocks takes long. A new block is at most
    as large as what is still expected, or as an eighth of all that is there.

    Args:
        allocate: makes memory of so many bytes; `pinned` without it.
        expected: the bytes that will be taken, as far as they are known.
    """

    def __init__(self, allocate: Callable[[int], Tensor] | None = None, expected: int = 0) -> None:
        self.allocate, self.expected = allocate or pinned, expected
        self.blocks: list[tuple[Tensor, int]] = []  # with the bytes that are taken

    def hosted(self, tensor: Tensor, old: object = None) -> Tensor:
        """A copy of a tensor in the host's memory, written into an old copy if that one fits."""
        return hosted(tensor, old, self)

    def take(self, like: Tensor) -> Tensor:
        """Memory for a copy of a tensor, laid out as the tensor is."""
        size = -(-like.numel() * like.element_size() // GRAIN) * GRAIN
        place = next((n for n, (block, used) in enumerate(self.blocks) if used + size <= len(block)), None)
        if place is None:
            there = sum(len(block) for block, _ in self.blocks)
            room = max(self.expected - there, there // 8, 1)
            length = max(1 << (size - 1).bit_length(), min(LARGEST, 1 << (room.bit_length() - 1)))
            self.blocks.append((self.allocate(length), 0))
            place = len(self.blocks) - 1
        block, used = self.blocks[place]
        self.blocks[place] = (block, used + size)
        part = block[used : used + like.numel() * like.element_size()].view(like.dtype)
        return part.as_strided(like.shape, torch.empty_like(like, device="meta").stride())


def hosted(tensor: Tensor, old: object = None, blocks: Blocks | None = None) -> Tensor:
    """A copy of a tensor, or of its local part, in the host's memory; written into an old copy if that one fits."""
    source = local(tensor)
    if isinstance(old, Tensor) and old.shape == source.shape and old.dtype == source.dtype:
        return old.copy_(source, non_blocking=True)
    if source.layout != torch.strided or not source.is_cuda:
        return source.to("cpu", copy=True)
    with torch.inference_mode(False):
        memory = (blocks or Blocks()).take(source) if source.numel() else torch.empty_like(source, device="cpu")
        return memory.copy_(source, non_blocking=True)


def pinned(length: int) -> Tensor:
    """Pinned bytes; ordinary ones where the system has no more pinned memory."""
    try:
        return torch.empty(length, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(length, dtype=torch.uint8)


class Room:
    """The host's room for parked lanes. Processes that train together race as many lanes as all of them can park.

    Args:
        needs: the bytes that each lane takes that has not been parked yet.
    """

    def __init__(self, needs: Sequence[int]) -> None:
        self.needs, self.free = needs, free_memory() if needs else None

    def __str__(self) -> str:
        known = "" if self.free is None else f", and {self.free / 2**30:.3g} GiB are free"
        return f"a lane takes {max(self.needs) / 2**30:.3g} GiB{known}"

    def votes(self) -> list[float]:
        """One for the number of lanes that fit, from the front of the list; the first one has to."""
        fits = len(self.needs)
        if self.free is not None:
            fits = max(1, sum(total <= FILLED * self.free for total in accumulate(self.needs)))
        return [float(number + 1 == fits) for number in range(len(self.needs))]

    @staticmethod
    def fewest(votes: Sequence[float]) -> int:
        """The least number of lanes that any process has voted for."""
        return next((number + 1 for number, count in enumerate(votes) if count), 0)


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process can still take, by the system and by the limits of its container; None if unknown.

    root: of the file system.
    """
    found = [*_of_system(root), *_of_container(root)]
    told = os.environ.get("LOCAL_WORLD_SIZE", "")  # processes on this machine, as torchrun tells
    return max(0, min(found)) // (int(told) if told.isdigit() and int(told) else 1) if found else None


def _of_system(root: Path) -> Iterator[int]:
    lines = _text(root / "proc/meminfo").splitlines()
    told = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    if told:
        yield from told
    elif root == Path("/") and hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container(root: Path) -> Iterator[int]:
    """The memory that the control groups of this process leave it, in their second version and in their first one."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds not in ("", "memory"):
            continue
        first = kinds == "memory"
        top = root / "sys/fs/cgroup" / kinds
        limit, used = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else ("memory.max", "memory.current")
        inside = top / path.strip("/")
        for folder in (inside, *inside.parents):
            numbers = [_text(folder / name).strip() for name in (limit, used)]
            if all(number.isdigit() for number in numbers):
                yield int(numbers[0]) - int(numbers[1]) + _reclaimable(folder)
            if folder == top:
                break


def _reclaimable(folder: Path) -> int:
    """Bytes of files that the system keeps and would give up."""
    words = [line.split() for line in _text(folder / "memory.stat").splitlines()]
    found = {name: int(value) for name, value in (pair for pair in words if len(pair) == 2)}
    return sum(found.get(f"total_{name}", found.get(name, 0)) for name in ("inactive_file", "active_file"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
