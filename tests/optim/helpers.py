"""A small classification problem for the optimizer's tests, and the few looks inside that they share."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwap
from hotswap.optim.moves import Move

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def model(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Sigmoid(), nn.Linear(8, 3)).to(dtype)


def noisy(device: str = "cpu") -> nn.Sequential:
    """A network with dropout, and with batch norm with and without parameters of its own."""
    torch.manual_seed(0)
    parts = [nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(16, affine=False)]
    return nn.Sequential(*parts, nn.Linear(16, 3)).to(device)


def batches(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        x = torch.randn(16, 5, generator=generator, dtype=dtype)
        made.append((x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()))
    return made


def loss_of(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Callable[[], Tensor]:
    return lambda: cross_entropy(net(batch[0]), batch[1])


def train(net: nn.Module, optimizer: HotSwap, data: list[Any]) -> list[Any]:
    """One step on each minibatch, and what they did."""
    records = []
    for batch in data:
        optimizer.step(loss_of(net, batch))
        records.append(optimizer.last_step)
    return records


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it comes back from a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def weights(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    """Bit for bit."""
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def advance(optimizer: HotSwap, output: Callable[[Tensor], Tensor], *norms: nn.Module, steps: int = 1) -> None:
    """Takes steps, each of which counts once for every batch norm, however many trials it has."""
    for x, y in batches(steps):
        before = [int(norm.num_batches_tracked) for norm in norms]
        optimizer.step(lambda x=x, y=y: cross_entropy(output(x), y))
        assert [int(norm.num_batches_tracked) for norm in norms] == [count + 1 for count in before]


def take(optimizer: HotSwap, closure: Callable[[], Tensor]) -> None:
    """A step whose trials all seem better than the start point, so that the first of them is taken."""
    optimizer.check_closure = False
    optimizer.step(closure, trial_closure=lambda: torch.tensor(0.5), loss=1.0)


def own_entry(optimizer: HotSwap) -> dict[str, Any]:
    """What hot swapping adds to the state of the base optimizer."""
    entry: dict[str, Any] = optimizer.state_dict()["param_groups"][0]["hotswap"]
    return entry


def move_of(optimizer: HotSwap) -> Move:
    """How the optimizer moves its parameters to candidates and back."""
    return optimizer._trials.move
