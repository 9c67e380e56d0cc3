"""A recurrent network that predicts the next character of Python's standard library."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap.bench.workloads.base import WORKLOADS, Size, Task, Workload, judged_by_loss, seeded
from hotswap.bench.workloads.text import CHARACTERS, Text

__all__ = ["RecurrentText"]


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

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(model(x), y, reduction="none").mean(1)

        train, validation = (text.measured(count, held_out=held) for held in (False, True))
        return judged_by_loss(model, steps, lambda: text.minibatches(32, seed), loss, train, validation)
