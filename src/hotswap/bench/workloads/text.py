"""Workloads on text that is on every machine, the sources of Python's standard library: predict the next character."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap.bench.workloads.base import WORKLOADS, Batch, Size, Task, Workload, in_bfloat16, judged_by_loss, seeded

__all__ = ["CHARACTERS", "RecurrentText", "Text", "Transformer", "TransformerText", "fingerprint"]

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

    def task(
        self, model: nn.Module, scores: Callable[[Tensor], Tensor], steps: int, batch_size: int, count: int, seed: int
    ) -> Task:
        """A network that is trained on these windows, and measured on so many of both texts."""

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(scores(x), y, reduction="none").mean(1)

        train, validation = (self.measured(count, held_out=held) for held in (False, True))
        return judged_by_loss(model, steps, lambda: self.minibatches(batch_size, seed), loss, train, validation)


class Recurrent(nn.Module):
    """An LSTM over characters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.net = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        """The logits `(B, CHARACTERS, T)` of the next characters."""
        scores: Tensor = self.head(self.net(self.embed(x))[0])
        return scores.transpose(1, 2)


@WORKLOADS.register("recurrent_text")
class RecurrentText(Workload):
    """One layer of 128 units, windows of 48 characters."""

    title = "a recurrent network on text"
    measured = "validation loss per character"
    reads_sources = True

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        width, length, steps, count, most = (128, 48, 1200, 1000, None) if size == "full" else (16, 12, 80, 50, 20_000)
        text, model = Text(length, device, most), seeded(lambda: Recurrent(width), seed).to(device)
        return text.task(model, model, steps, 32, count, seed)


class Transformer(nn.Module):
    """Pre-norm blocks with causal attention and learned positions."""

    def __init__(self, width: int, layers: int, heads: int, length: int, dropout: float) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(CHARACTERS, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, CHARACTERS, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The logits `(B, CHARACTERS, T)` of the next characters."""
        here = self.embed(x) + self.place.weight[: x.shape[1]]
        scores: Tensor = self.head(self.blocks(here, mask=self.mask, is_causal=True))
        return scores.transpose(1, 2)


@WORKLOADS.register("transformer_text")
class TransformerText(Workload):
    """Six blocks, 256 wide, windows of 128 characters, dropout 0.1; products in bfloat16 on a GPU."""

    title = "a causal transformer on text"
    measured = "validation loss per character"
    wants_gpu = True
    bfloat16_on_gpu = True
    reads_sources = True

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        full = size == "full"
        shape = (256, 6, 8, 128) if full else (16, 1, 2, 16)
        steps, batch_size, count = (2000, 64, 500) if full else (80, 16, 50)
        text = Text(shape[-1], device, None if full else 20_000)
        model = seeded(lambda: Transformer(*shape, dropout=0.1), seed).to(device)
        return text.task(model, in_bfloat16(model, device), steps, batch_size, count, seed)
