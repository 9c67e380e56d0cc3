"""Races of several processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap import Race

RATES = (1e-1, 3e-2, 1e-3, 1e-4)
STEPS = 40
SAVED = 17  # of these, when the race is saved

Minibatches = list[tuple[Tensor, Tensor]]


def race(net: nn.Module, *, several: bool = False) -> Race:
    """Of AdamW, or of `several` optimizers: then SGD wins."""
    bases: list[torch.optim.Optimizer] = [torch.optim.AdamW(net.parameters())]
    arms: list[dict[str, tuple[float, ...]]] = [{"lr": RATES}]
    if several:
        bases.append(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        arms = [{"lr": RATES[2:]}, {"lr": (1e-1, 3e-2)}]
    return Race(bases, arms, total_steps=STEPS, rounds=((12, 2), (24, 1)), least=5)


def train(optimizer: Race, net: nn.Module, batches: Minibatches, *, lost: bool = False) -> list[int]:
    """How many lanes there were in each step. Where it is `lost`, the first lane has no loss from the fifth step on."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        first = next((lane for lane in optimizer._course.lanes if lane.number == 0), None)
        here = first is not None and optimizer.base.state is first.state
        return cross_entropy(net(x), y) * (math.nan if lost and here and optimizer.cost.plain > 3 else 1)

    living = []
    for x, y in batches:
        optimizer.step(lambda x=x, y=y: loss(x, y))
        assert optimizer.last_step is not None
        living.append(len(optimizer.last_step.losses))
    return living


def alone(net: nn.Module, winner: Race, batches: Minibatches) -> None:
    """The run of the winner without a race."""
    assert winner.winner is not None
    momentum = {"momentum": 0.9} if isinstance(winner.base, torch.optim.SGD) else {}
    base = type(winner.base)(net.parameters(), **momentum)  # type: ignore[call-arg]
    for number, (x, y) in enumerate(batches):
        base.param_groups[0]["lr"] = winner.winner["lr"] * winner.schedule.factor(number)  # type: ignore[operator]
        base.zero_grad()
        cross_entropy(net(x), y).backward()
        base.step()


def raced(
    build: Callable[[], nn.Module], rank: int, batches: Minibatches, file: Path, *, several: bool = False
) -> tuple[nn.Module, dict[str, Any]]:
    """A race that is saved on its way, and the nets of one that goes on from there and of the winner's run alone."""
    net, again, single = build(), build(), build()
    optimizer, second = race(net, several=several), race(again, several=several)
    living = train(optimizer, net, batches[:SAVED], lost=rank == 1)
    torch.save({"net": net.state_dict(), "race": optimizer.state_dict()}, file)
    living += train(optimizer, net, batches[SAVED:])
    saved = torch.load(file, weights_only=False)  # shards are tensors of a class of their own
    again.load_state_dict(saved["net"])
    second.load_state_dict(saved["race"])
    train(second, again, batches[SAVED:])
    alone(single, optimizer, batches)
    return net, {
        "living": living,
        "winner": optimizer.winner,
        "base": type(optimizer.base).__name__,
        "standings": [row.reason for row in optimizer.standings()],
        "resumed": again,
        "alone": single,
    }
