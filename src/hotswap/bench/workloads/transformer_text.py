"""A causal transformer with dropout that predicts the next character of Python's standard library."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap.bench.workloads.base import WORKLOADS, Size, Task, Workload, in_bfloat16, judged_by_loss, seeded
from hotswap.bench.workloads.text import CHARACTERS, Text

__all__ = ["TransformerText"]


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
        scores = in_bfloat16(model, device)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(scores(x), y, reduction="none").mean(1)

        train, validation = (text.measured(count, held_out=held) for held in (False, True))
        return judged_by_loss(model, steps, lambda: text.minibatches(batch_size, seed), loss, train, validation)
