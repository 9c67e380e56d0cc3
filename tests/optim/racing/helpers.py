"""Small problems on which lanes can be compared with runs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

import hotswap
from hotswap.races import Schedule

RATES = (0.1, 0.01, 0.001)
ROUNDS = ((12, 2), (24, 1))
STEPS = 40


def network(seed: int = 0) -> nn.Sequential:
    """With batch norm, dropout and a layer that is not trained."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(6, 12),
            nn.BatchNorm1d(12),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(12, 8),
            nn.Tanh(),
            nn.Linear(8, 3),
        )
    model[4].requires_grad_(False)
    return model


def minibatches(count: int = STEPS, seed: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(16, 6, generator=numbers)
        yield x, (x[:, :3] + 0.3 * torch.randn(16, 3, generator=numbers)).argmax(1)


def race(model: nn.Module, make: Callable[[Any], Optimizer] = torch.optim.AdamW, **settings: Any) -> hotswap.Race:
    settings = {"total_steps": STEPS, "rounds": ROUNDS, "least": 5, "module": model} | settings
    return hotswap.Race(make(list(model.parameters())), settings.pop("arms", {"lr": RATES}), **settings)


def train(
    optimizer: hotswap.Race, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], seed: int | None = 7
) -> list[dict[int, float]]:
    """The losses of all lanes, step by step."""
    if seed is not None:
        torch.manual_seed(seed)
    losses = []
    for x, y in batches:
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        assert optimizer.last_step is not None
        losses.append(optimizer.last_step.losses)
    return losses


def alone(
    model: nn.Module,
    base: Optimizer,
    rate: float,
    schedule: Schedule,
    batches: Iterable[tuple[Tensor, Tensor]],
    seed: int = 7,
) -> list[float]:
    """A run without a race: the same rate, schedule, minibatches and random numbers. Returns its losses."""
    torch.manual_seed(seed)
    losses = []
    for step, (x, y) in enumerate(batches):
        for group in base.param_groups:
            group["lr"] = rate * schedule.factor(step)
        base.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        base.step()
        losses.append(loss.item())
    return losses


def contents(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)
