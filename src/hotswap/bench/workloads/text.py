"""Text that is on every machine: the sources of Python's standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from hotswap.bench.workloads.base import Batch

__all__ = ["CHARACTERS", "Text", "fingerprint"]

CHARACTERS = 128
"""ASCII; others are written as a question mark."""

HELD_OUT = 20
"""One file in so many is for validation."""


@cache
def sources() -> tuple[bytes, bytes]:
    """All modules in the standard library's own folder, by name: those to train on, and those held out."""
    files = sorted(file for file in Path(sysconfig.get_paths()["stdlib"]).glob("*.py") if file.is_file())
    texts = [file.read_text(encoding="utf-8", errors="replace").encode("ascii", errors="replace") for file in files]
    train = b"\n".join(text for number, text in enumerate(texts) if number % HELD_OUT)
    return train, b"\n".join(text for number, text in enumerate(texts) if number % HELD_OUT == 0)


@cache
def fingerprint() -> str:
    """The fingerprint of all sources. Builds of one Python version may have their own files in the folder."""
    digest = sha256()
    for text in sources():
        digest.update(text)
        digest.update(b"\0")
    return digest.hexdigest()[:12]


class Text:
    """Characters as numbers, in windows of one length.

    length: of a window; the network predicts each character of it from those before.
    most: characters of the training text, from its beginning.
    """

    def __init__(self, length: int, device: torch.device | str, most: int | None = None) -> None:
        self.length = length
        train, held_out = (torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in sources())
        self.train, self.held_out = train[:most].to(device), held_out[: None if most is None else most // 4].to(device)

    def minibatches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Windows from anywhere in the training text."""
        numbers = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(self.train) - self.length - 1, (batch_size,), generator=numbers)
            yield self._windows(self.train, starts)

    def measured(self, count: int, *, held_out: bool) -> Batch:
        """So many windows, evenly spread over the text."""
        text = self.held_out if held_out else self.train
        return self._windows(text, torch.linspace(0, len(text) - self.length - 2, count).long())

    def _windows(self, text: Tensor, starts: Tensor) -> Batch:
        rows = (starts[:, None] + torch.arange(self.length + 1)).to(text.device)
        found = text[rows].long()
        return found[:, :-1], found[:, 1:]
