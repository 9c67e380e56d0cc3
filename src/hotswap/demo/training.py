"""Train the same network from the same weights on the same minibatches with different optimizers, at the same cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from hotswap.data import Dataset, load_digits, load_mnist
from hotswap.demo.optimizers import Contender, Rate
from hotswap.errors import DataError, SettingError
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron
from hotswap.optim import HotSwap
from hotswap.race import Race, Standings

__all__ = ["DemoSettings", "Outcome", "Point", "budget", "load_data", "train"]

TRAIN_IMAGES = 50_000  # the paper trains on the first 50,000
LOSS_IMAGES = 10_000
"""Training images, the first ones, on which the training loss is measured."""

POINTS, FIRST_POINT = 25, 0.01
"""How often a contender is measured, and after which share of its passes first; points grow by a constant factor."""

TRIAL = 1 / 3
"""Cost of a forward pass alone, in forward-and-backward passes: a backward pass costs twice as much."""


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """The settings of the demo's runs."""

    epochs: int = 10
    batch_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise SettingError(f"The demo's {name.replace('_', ' ')} is {getattr(self, name)}; give at least 1.")


@dataclass(frozen=True)
class Point:
    """A measurement of the weights that a contender would hand over now."""

    passes: float
    loss: float
    """The mean loss over the first training images."""
    error: float
    """Share of wrong predictions on the test images."""


@dataclass
class Outcome:
    """The record of one contender's run."""

    name: str
    rate: Rate
    points: list[Point] = field(default_factory=list)
    steps: int = 0
    passes: float = 0.0
    """Cost in forward-and-backward passes, trials among them."""
    seconds: float = 0.0
    """Processor time of training, without measurements: other programs that run at the same time change it little."""
    rates: list[float] = field(default_factory=list)
    """The rate of each step that moved, of a contender that chooses it for each; the last one, of the others."""
    standings: Standings | None = None
    """The standings of a race; None for the other contenders."""

    @property
    def end(self) -> Point:
        """The last measurement."""
        return self.points[-1]


def budget(data: Dataset, settings: DemoSettings) -> int:
    """The cost of every run, in forward-and-backward passes over a minibatch."""
    images = min(TRAIN_IMAGES, len(data.train_images))
    if images < settings.batch_size:
        raise SettingError(
            f"The demo's batch size is {settings.batch_size}, but {data.name} has only {images} training images."
        )
    return settings.epochs * (images // settings.batch_size)


def load_data(folder: Path | None, report: Callable[[str], None]) -> Dataset:
    """MNIST, or scikit-learn's digits where no source of MNIST can be reached."""
    try:
        return load_mnist(folder, report)
    except DataError as error:
        report(f"{error}\nFalling back to scikit-learn's 8x8 digits: smaller images, so other numbers than MNIST's.")
        return load_digits()


def train(
    contender: Contender, data: Dataset, settings: DemoSettings, on_step: Callable[[Outcome, float], None]
) -> Outcome:
    """Train one contender until it has spent the budget; `on_step` sees what it has done, and its latest loss."""
    total = budget(data, settings)
    inputs, labels = torch.from_numpy(data.train_inputs()[:TRAIN_IMAGES]), torch.from_numpy(data.train_labels)
    tests = torch.from_numpy(data.test_inputs()), torch.from_numpy(data.test_labels)
    network = multilayer_perceptron((data.features, *PAPER_HIDDEN, data.classes), seed=settings.seed)
    optimizer = contender.build(network, total)
    schedule = contender.schedule(optimizer, total) if contender.schedule else None
    outcome, points = Outcome(contender.name, contender.rate), _points(total)
    batches = _batches(len(inputs), settings)
    while outcome.passes < total:
        batch = next(batches)
        began = time.process_time()
        loss = _step(optimizer, network, inputs[batch], labels[batch], outcome)
        if schedule is not None:
            schedule.step()
        outcome.seconds += time.process_time() - began
        if points and outcome.passes >= points[0]:
            points = [point for point in points if point > outcome.passes]
            outcome.points.append(_measured(optimizer, network, (inputs, labels), tests, outcome.passes))
        on_step(outcome, loss)
    if isinstance(optimizer, Race):
        outcome.standings = optimizer.standings()
        if not any(lane.dropped_at for lane in outcome.standings):
            outcome.rate = Rate.ALONE
        outcome.rates = [rate for rate in [outcome.standings[0].rate] if rate is not None]
    elif not isinstance(optimizer, HotSwap):
        outcome.rates = [float(optimizer.param_groups[0]["lr"])]
    return outcome


def _points(total: int) -> list[float]:
    """The costs at which a run is measured, the last one at its end."""
    grown = [FIRST_POINT ** (1 - number / (POINTS - 1)) for number in range(POINTS)]
    return [float(passes) for passes in sorted({max(1, round(share * total)) for share in grown})]


def _batches(images: int, settings: DemoSettings) -> Iterator[Tensor]:
    """Minibatches without end, in an order that only the seed decides."""
    order = torch.Generator().manual_seed(settings.seed)
    whole = images // settings.batch_size * settings.batch_size
    while True:
        yield from torch.randperm(images, generator=order)[:whole].view(-1, settings.batch_size)


def _step(optimizer: Optimizer, network: nn.Module, x: Tensor, y: Tensor, outcome: Outcome) -> float:
    outcome.steps += 1
    if isinstance(optimizer, HotSwap):
        optimizer.step(lambda: cross_entropy(network(x), y))
        record = optimizer.last_step
        assert record is not None
        outcome.passes += 1 + TRIAL * len(record.trials)
        rate = float(record.values["lr"])  # type: ignore[arg-type]  # a rate is a float
        outcome.rates += [rate] if rate > 0 else []
        return record.loss_before
    outcome.passes += 1
    loss = cross_entropy(network(x), y)
    torch.autograd.backward(loss)
    if isinstance(optimizer, Race):
        optimizer.step(loss)
    else:
        optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


@torch.no_grad()
def _measured(
    optimizer: Optimizer,
    network: nn.Module,
    training: tuple[Tensor, Tensor],
    tests: tuple[Tensor, Tensor],
    passes: float,
) -> Point:
    race = optimizer if isinstance(optimizer, Race) else None
    if race is not None:
        race.eval()
    loss = float(cross_entropy(network(training[0][:LOSS_IMAGES]), training[1][:LOSS_IMAGES]))
    scores = network(tests[0])
    error = float((scores.argmax(1) != tests[1]).double().mean()) if scores.isfinite().all() else math.nan
    if race is not None:
        race.train()
    return Point(passes, loss, error)
