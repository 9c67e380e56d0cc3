"""Train the same network from the same weights on the same minibatches with different optimizers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hotswap.data import Dataset, load_digits, load_mnist
from hotswap.errors import DataError, SettingError
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron
from hotswap.optim import HotSwap, HotSwapSGD
from hotswap.searches import Backtracking

__all__ = ["Contender", "DemoSettings", "Outcome", "contenders", "load_data", "steps_per_epoch", "train"]

TRAIN_IMAGES = 50_000  # the paper trains on the first 50,000


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What the demo runs."""

    epochs: int = 10
    batch_size: int = 64
    seed: int = 0
    rates: tuple[float, ...] = (10.0, 1.0, 0.1, 0.01)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise SettingError(f"The demo's {name.replace('_', ' ')} is {getattr(self, name)}; give at least 1.")


@dataclass(frozen=True)
class Contender:
    """A name and a way to build the optimizer."""

    name: str
    build: Callable[[Iterable[Tensor]], torch.optim.Optimizer]
    tuned: bool = False
    """Whether somebody has to choose its rate: there are several of it, at different rates."""


@dataclass
class Outcome:
    """What one contender did."""

    name: str
    swaps: bool
    """Whether the optimizer chose its rate itself."""
    tuned: bool = False
    """Whether its rate was given; see `Contender`."""
    train_losses: list[float] = field(default_factory=list)
    """Mean minibatch loss of each epoch, before each step."""
    test_errors: list[float] = field(default_factory=list)
    """Share of wrong test predictions after each epoch."""
    rates: list[float] = field(default_factory=list)
    """The rate of each step, for those that choose it."""
    passes: int = 0
    """Forward and backward passes."""
    trials: int = 0
    """Forward passes beside those."""
    seconds: float = 0.0
    """Training time, tests not counted."""


def steps_per_epoch(data: Dataset, settings: DemoSettings) -> int:
    """How many whole minibatches there are."""
    return min(TRAIN_IMAGES, len(data.train_images)) // settings.batch_size


def contenders(settings: DemoSettings) -> list[Contender]:
    """Hot swapping as in the paper, with one arm of headroom, AdamW as torch has it, AdaDelta as in the paper, SGD at
    several rates."""
    return [
        Contender("HotSwapSGD", HotSwapSGD),
        Contender("HotSwapSGD, headroom 1", lambda p: HotSwapSGD(p, search=Backtracking(headroom=1))),
        Contender("AdamW", torch.optim.AdamW),
        Contender("AdaDelta", lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.95, eps=1e-6)),
        *(Contender(f"SGD, rate {rate:g}", partial(torch.optim.SGD, lr=rate), tuned=True) for rate in settings.rates),
    ]


def load_data(folder: Path | None, report: Callable[[str], None]) -> Dataset:
    """MNIST, or scikit-learn's digits where no source of MNIST can be reached."""
    try:
        return load_mnist(folder, report)
    except DataError as error:
        report(f"{error}\nFalling back to scikit-learn's 8x8 digits: smaller images, so other numbers than MNIST's.")
        return load_digits()


def train(
    contender: Contender, data: Dataset, settings: DemoSettings, on_step: Callable[[int, float], None]
) -> Outcome:
    """Train one contender; `on_step` is told the number of steps done and the latest loss."""
    inputs = torch.from_numpy(data.train_inputs()[:TRAIN_IMAGES])
    labels = torch.from_numpy(data.train_labels[:TRAIN_IMAGES])
    network = multilayer_perceptron((data.features, *PAPER_HIDDEN, data.classes), seed=settings.seed)
    optimizer = contender.build(network.parameters())
    outcome = Outcome(contender.name, isinstance(optimizer, HotSwap), contender.tuned)
    order = torch.Generator().manual_seed(settings.seed)
    steps = steps_per_epoch(data, settings)
    if steps == 0:
        raise SettingError(
            f"The demo's batch size is {settings.batch_size}, but {data.name} has only {len(inputs)} training images."
        )
    for _ in range(settings.epochs):
        began, total = time.perf_counter(), 0.0
        rows = torch.randperm(len(inputs), generator=order)[: steps * settings.batch_size].view(steps, -1)
        for number, batch in enumerate(rows, start=1):
            loss = _step(optimizer, network, inputs[batch], labels[batch], outcome)
            total += loss
            on_step(number, loss)
        outcome.seconds += time.perf_counter() - began
        outcome.train_losses.append(total / steps)
        outcome.test_errors.append(_test_error(network, data))
    return outcome


def _step(optimizer: torch.optim.Optimizer, network: torch.nn.Module, x: Tensor, y: Tensor, outcome: Outcome) -> float:
    if isinstance(optimizer, HotSwap):
        optimizer.step(lambda: cross_entropy(network(x), y))
        record = optimizer.last_step
        assert record is not None
        outcome.passes, outcome.trials = outcome.passes + 1, outcome.trials + len(record.trials)
        outcome.rates.append(float(record.values["lr"]))  # type: ignore[arg-type]  # a rate is a float
        return record.loss_before
    outcome.passes += 1
    optimizer.zero_grad()
    loss = cross_entropy(network(x), y)
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def _test_error(network: torch.nn.Module, data: Dataset) -> float:
    scores = network(torch.from_numpy(data.test_inputs()))
    if not scores.isfinite().all():
        return math.nan
    return float((scores.argmax(1) != torch.from_numpy(data.test_labels)).double().mean())
