"""What the benchmarks train: networks, and minibatches made up so that there is something to learn."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron


def paper_network() -> nn.Module:
    return multilayer_perceptron((784, *PAPER_HIDDEN, 10), seed=0)


def wide_network() -> nn.Module:
    """20 M weights, each of which is used once per image: what is done to weights weighs as much as it can."""
    return multilayer_perceptron((784, 4096, 4096, 10), seed=0)


class Convolutions(nn.Module):
    """Batch norm and dropout as they come: 20 M weights in 24 convolutions."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 64, 128, 256, 256, 256, *[320] * 19]
        blocks = [
            block
            for a, b in pairwise(widths)
            for block in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        ]
        self.body = nn.Sequential(*blocks[:6], nn.MaxPool2d(4), *blocks[6:])
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(320, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def pictures(size: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 3, 32, 32)
    return x, x.mean((1, 2, 3)).gt(0).long()


class Tagger(nn.Module):
    """A transformer encoder that classifies a short sequence of tokens: 23 M weights."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(4096, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(512, 4096)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(tokens)).mean(1))


def images(size: int) -> tuple[Tensor, Tensor]:
    """Made-up images whose labels a linear teacher gives, so that there is something to learn."""
    x = 0.3 * torch.randn(size, 784)
    return x, (x @ torch.randn(784, 10, generator=torch.Generator().manual_seed(1))).argmax(1)


def tokens(size: int) -> tuple[Tensor, Tensor]:
    x = torch.randint(0, 4096, (size, 8))
    return x, x[:, 0]
