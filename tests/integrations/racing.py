"""A small problem on which it is known which lane wins, and what the tests of races in frameworks compare."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.data import DataLoader, TensorDataset

import hotswap

CLASSES, BATCH, BATCHES, EPOCHS = 3, 16, 18, 9  # epochs end within turns
STEPS = EPOCHS * BATCHES
GOOD, BAD = 0.3, 1e-5


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, CLASSES))


def data(samples: int = BATCHES * BATCH, seed: int = 1) -> TensorDataset:
    x = torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :CLASSES].argmax(1))


def loader(**settings: Any) -> DataLoader[Any]:
    return DataLoader(data(), batch_size=BATCH, **settings)


def batches(begin: int, end: int) -> Iterator[Any]:
    """The minibatches of some steps of a run that goes through the samples in order."""
    x, y = data().tensors
    for number in range(begin, end):
        rows = slice(number % BATCHES * BATCH, (number % BATCHES + 1) * BATCH)
        yield x[rows], y[rows]


def loss_of(net: nn.Module, batch: Any) -> Tensor:
    return cross_entropy(net(batch[0]).float(), batch[1])


def lanes(net: nn.Module) -> list[Optimizer]:
    """The second one is clearly best."""
    trained = [p for p in net.parameters() if p.requires_grad]
    return [AdamW(trained, lr=BAD), SGD(trained, lr=GOOD)]


def race(net: nn.Module, total_steps: int | None = STEPS, **settings: Any) -> hotswap.Race:
    return hotswap.Race(net, lanes(net), total_steps=total_steps, **settings)


def check_winner(of: hotswap.Race) -> None:
    """The right lane has won after a real race."""
    assert of.winner is not None
    assert of.winner.rates == [GOOD]
    loser = of.standings()[-1]
    assert loser.dropped_at
    assert loser.steps >= 20


def weights(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def check_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def through_a_file(state: Any) -> Any:
    """A checkpoint as it comes back from a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Program(Protocol):
    """A training run that can be stopped after any step."""

    net: nn.Module
    race: hotswap.Race
    others: list[Any]
    """What else has a state: other optimizers, scalers."""

    def run(self, begin: int, end: int) -> None:
        """Train from a step of the run to another one."""


def check_resumes(make: Callable[[], Program], stops: tuple[int, ...] = (13, 55, 120), total: int = STEPS) -> Program:
    """A run that is stopped and resumed is bit for bit the run without a stop, which is returned."""
    whole = make()
    torch.manual_seed(2)
    whole.run(0, total)
    part = make()
    torch.manual_seed(2)
    for begin, end in zip((0, *stops), (*stops, total), strict=True):
        part.run(begin, end)
        states = [thing.state_dict() for thing in (part.net, part.race, *part.others)]
        saved, random = through_a_file([states, torch.get_rng_state()])
        torch.manual_seed(99)
        part = make()
        for thing, state in zip((part.net, part.race, *part.others), saved, strict=True):
            thing.load_state_dict(state)
        torch.set_rng_state(random)
    check_equal(weights(part.net), weights(whole.net))
    return whole


Loop = Callable[[nn.Module, hotswap.Race, int, int], None]
"""Trains a network from a step of the run to another one."""


def check_loop(loop: Loop, make: Callable[[], nn.Module] = network, stops: tuple[int, ...] = (13, 55, 120)) -> None:
    """The right lane wins, and the loop resumes exactly, in the race and after it."""

    class Looped:
        def __init__(self) -> None:
            self.net = make()
            self.race, self.others = race(self.net), []

        def run(self, begin: int, end: int) -> None:
            loop(self.net, self.race, begin, end)

    check_winner(check_resumes(Looped, stops).race)
