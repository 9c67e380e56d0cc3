"""What the benchmarks train: networks, and minibatches made up so that there is something to learn."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

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


class Block(nn.Module):
    """A pre-norm block with the query, key and value in one matrix, as GPT-2 has it."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mix(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(scaled_dot_product_attention(*parts, is_causal=self.causal).transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A causal transformer whose head is tied to its embedding."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        here = self.embed(x) + self.place.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(here))).flatten(0, 1)


class VisionTransformer(nn.Module):
    """Patches of 4 x 4 pixels: 2.7 M weights."""

    def __init__(self, width: int = 192, layers: int = 6, heads: int = 3) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, width, 4, 4), nn.Parameter(torch.zeros(1, 64, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patch(x).flatten(2).mT + self.place)).mean(1))


class Residual(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(width, width), _convolution(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def _convolution(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU())


def resnet9() -> nn.Module:
    """6.6 M weights, for pictures of 32 x 32 pixels."""
    half = nn.MaxPool2d(2)
    return nn.Sequential(
        *(_convolution(3, 64), _convolution(64, 128), half, Residual(128)),
        *(_convolution(128, 256), half, _convolution(256, 512), half, Residual(512)),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(512, 10)),
    )


def text(vocabulary: int, count: int, length: int) -> tuple[Tensor, Tensor]:
    """Windows of tokens, and the next tokens."""
    drawn = torch.randint(0, vocabulary, (count, length + 1))
    return drawn[:, :-1], drawn[:, 1:].flatten()


class Adapted(nn.Module):
    """A linear layer that is frozen, with a low-rank part that is trained (LoRA)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.down.mT @ self.up.mT


def adapted(model: nn.Module, rank: int = 8) -> nn.Module:
    """The model with everything frozen but low-rank parts of the layers in its blocks."""
    model.requires_grad_(False)
    for block in (module for module in model.modules() if isinstance(module, Block)):
        for name in ("mix", "out", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name), rank))
    return model
