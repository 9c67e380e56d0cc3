"""A small classification problem for the optimizer's tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def model(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Sigmoid(), nn.Linear(8, 3)).to(dtype)


def batches(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        x = torch.randn(16, 5, generator=generator, dtype=dtype)
        made.append((x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()))
    return made


def loss_of(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Callable[[], Tensor]:
    return lambda: cross_entropy(net(batch[0]), batch[1])


def weights(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    """Bit for bit."""
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
