"""What it costs to keep a real training loop right: `python -m benchmarks.step_cost --real`.

Each protection is timed where it happens, in hot-swapped steps of a network of 20 M weights with and one without batch
norm, and set beside the time of whole steps that are not timed inside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import describe, synchronize
from hotswap.optim import guards
from hotswap.optim.agreement import Agreement


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


@dataclass
class Clock:
    """Seconds spent in pieces of code, by name."""

    device: torch.device
    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        synchronize(self.device)
        began = time.perf_counter()
        yield
        synchronize(self.device)
        self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - began

    def around(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: object, **kwargs: object) -> object:
            with self.timing(name):
                return function(*args, **kwargs)

        return timed


PIECES = (
    ("random numbers", guards.Randomness, "read"),
    ("random numbers", guards.Randomness, "write"),
    ("buffers", guards, "_read"),
    ("buffers", guards, "_write"),
    ("finding modules", guards.Guard, "_survey"),
    ("stale shards", guards.Guard, "_reshard"),
    ("one decision", Agreement, "mean"),
)


def protections(device: torch.device, *, quick: bool) -> Table:
    """A table of what each protection adds, on one device."""
    table = Table(title=describe(device), caption="ms a step; the aim is at most 5 % together from 20 M weights on")
    names = list(dict.fromkeys(name for name, *_ in PIECES))
    for column in ("network", "step", "trials", *names, "together", "of a step"):
        table.add_column(column, justify="left" if column == "network" else "right")
    rounds = 3 if quick else (10 if device.type == "cpu" else 100)
    for name, network, batch in (
        ("convolutions, 20 M, batch 32", Convolutions, lambda: pictures(32)),
        ("784-4096-4096-10, 20 M, batch 64", _wide, _images),
    ):
        table.add_row(name, *_row(network, batch, device, rounds, names))
    return table


def _wide() -> nn.Module:
    return hotswap.networks.multilayer_perceptron((784, 4096, 4096, 10), seed=0)


def _images() -> tuple[Tensor, Tensor]:
    x = 0.3 * torch.randn(64, 784)
    return x, x.sum(1).gt(0).long()


def _row(
    network: Callable[[], nn.Module],
    batch: Callable[[], tuple[Tensor, Tensor]],
    device: torch.device,
    rounds: int,
    names: list[str],
) -> list[str]:
    torch.manual_seed(0)
    model = network().to(device)
    optimizer = hotswap.HotSwapSGD(model.parameters(), lr=hotswap.log_grid(1, 1e-3, 7))
    x, y = (part.to(device) for part in batch())
    clock, trials = Clock(device), 0

    def step() -> None:
        optimizer.step(lambda: cross_entropy(model(x), y))

    for _ in range(8):
        step()
    for _ in range(rounds):
        with clock.timing("step"):
            step()
        trials += len(optimizer.last_step.trials)
    whole = clock.spent["step"] / rounds
    kept = [(owner, attribute, getattr(owner, attribute)) for _, owner, attribute in PIECES]
    try:
        for (name, owner, attribute), (*_, function) in zip(PIECES, kept, strict=True):
            setattr(owner, attribute, clock.around(name, function))
        for _ in range(rounds):
            step()
    finally:
        for owner, attribute, function in kept:
            setattr(owner, attribute, function)
    spent = {name: clock.spent.get(name, 0.0) / rounds for name in names}
    spent["finding modules"] -= spent["buffers"] / (2 + trials / rounds)  # it reads the buffers once
    together = sum(spent.values())
    numbers = (f"{1e3 * spent[name]:.3f}" for name in names)
    return [
        f"{1e3 * whole:.1f}",
        f"{trials / rounds:.1f}",
        *numbers,
        f"{1e3 * together:.3f}",
        f"{together / whole:.1%}",
    ]
