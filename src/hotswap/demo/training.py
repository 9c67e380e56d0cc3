"""Train the same network from the same weights on the same minibatches with different optimizers, at the same cost.

The optimizers are methods of the benchmark, and the problem is one of its tasks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hotswap.bench.methods import METHODS, Training
from hotswap.bench.methods.base import Plain
from hotswap.bench.methods.ours import Racing
from hotswap.bench.workloads import Batch, Measures, Task
from hotswap.bench.workloads.base import in_evaluation, minibatches_of
from hotswap.data import Dataset, load_digits, load_mnist
from hotswap.errors import DataError, SettingError
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron
from hotswap.optim import HotSwap
from hotswap.race import Race, Standings

__all__ = [
    "PRODIGY_IS_MISSING",
    "Contender",
    "Outcome",
    "Point",
    "Rate",
    "contenders",
    "load_data",
    "task_of",
    "train",
]

PRODIGY_IS_MISSING = "Prodigy is left out: it needs prodigyopt, which is not installed."

TRAIN_IMAGES = 50_000  # the paper trains on the first 50,000
LOSS_IMAGES = 10_000
"""Training images, the first ones, on which the training loss is measured."""

POINTS, FIRST_POINT = 25, 0.01
"""How often a contender is measured, and after which share of its passes first; points grow by a constant factor."""


class Rate(Enum):
    """The origin of a learning rate."""

    WON = "won"
    ALONE = "alone"
    """The first lane's, in a run that was too short to race."""
    DEFAULT = "default"
    ESTIMATED = "estimated"
    MEDIAN = "median"


@dataclass(frozen=True)
class Contender:
    """An optimizer that a newcomer can use without choosing a learning rate."""

    name: str
    rate: Rate
    begin: Callable[[Task], Training]


def contenders() -> list[Contender]:
    """The race of the default lanes, AdamW as torch has it, Prodigy where it is installed, the paper's algorithm."""

    def method(name: str) -> Callable[[Task], Training]:
        return lambda task: METHODS[name]().begin(task, METHODS[name].first.settings, 0)

    return [
        Contender("Race", Rate.WON, lambda task: Racing(task, Race(task.model, total_steps=task.steps))),
        Contender("AdamW", Rate.DEFAULT, method("adamw")),
        *([Contender("Prodigy", Rate.ESTIMATED, method("prodigy"))] if find_spec("prodigyopt") is not None else []),
        Contender("HotSwapSGD", Rate.MEDIAN, method("hotswap_sgd")),
    ]


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


def load_data(folder: Path | None, report: Callable[[str], None]) -> Dataset:
    """MNIST, or scikit-learn's digits where no source of MNIST can be reached."""
    try:
        return load_mnist(folder, report)
    except DataError as error:
        report(f"{error}\nFalling back to scikit-learn's 8x8 digits: smaller images, so other numbers than MNIST's.")
        return load_digits()


def task_of(data: Dataset, *, epochs: int = 10, batch_size: int = 64, seed: int = 0) -> Task:
    """The problem as each contender gets it; its steps are the passes that each may take."""
    images = min(TRAIN_IMAGES, len(data.train_images))
    if images < batch_size:
        raise SettingError(f"The demo's batch size is {batch_size}, but {data.name} has only {images} training images.")
    inputs, labels = torch.from_numpy(data.train_inputs()[:TRAIN_IMAGES]), torch.from_numpy(data.train_labels)
    tests, answers = torch.from_numpy(data.test_inputs()), torch.from_numpy(data.test_labels)
    network = multilayer_perceptron((data.features, *PAPER_HIDDEN, data.classes), seed=seed)

    def loss(batch: Batch) -> Tensor:
        return cross_entropy(network(batch[0]), batch[1])

    def measure() -> Measures:
        scores = network(tests)
        error = float((scores.argmax(1) != answers).double().mean()) if scores.isfinite().all() else math.nan
        return Measures(float(loss((inputs[:LOSS_IMAGES], labels[:LOSS_IMAGES]))), error)

    return Task(
        network,
        epochs * (images // batch_size),
        lambda: minibatches_of(inputs, labels, batch_size, seed),
        loss,
        in_evaluation(network, measure),
    )


def train(contender: Contender, task: Task, on_step: Callable[[Outcome, float], None]) -> Outcome:
    """Train one contender until it has spent the budget; `on_step` sees what it has done, and its latest loss."""
    losses: list[float] = []

    def noted(batch: Batch) -> Tensor:
        value = task.loss(batch)
        losses.append(float(value.detach()))
        return value

    training, outcome = contender.begin(replace(task, loss=noted)), Outcome(contender.name, contender.rate)
    due, batches = _points(task.steps), task.minibatches()
    optimizer = training.optimizer if isinstance(training, Plain) else None
    while training.cost < task.steps:
        batch = next(batches)
        losses.clear()
        began = time.process_time()
        training.step(batch)
        outcome.seconds += time.process_time() - began
        outcome.steps, outcome.passes = outcome.steps + 1, training.cost
        if isinstance(optimizer, HotSwap):
            assert optimizer.last_step is not None
            rate = float(optimizer.last_step.values["lr"])  # type: ignore[arg-type]  # a rate is a float
            outcome.rates += [rate] if rate > 0 else []
        if due and outcome.passes >= due[0]:
            due = [passes for passes in due if passes > outcome.passes]
            outcome.points.append(Point(outcome.passes, *training.measure()))
        on_step(outcome, losses[0])
    if isinstance(training, Racing):
        outcome.standings = training.race.standings()
        outcome.rate = Rate.WON if any(lane.dropped_at for lane in outcome.standings) else Rate.ALONE
        outcome.rates = [rate for rate in [outcome.standings[0].rate] if rate is not None]
    elif optimizer is not None and not isinstance(optimizer, HotSwap):
        outcome.rates = [float(optimizer.param_groups[0]["lr"])]
    return outcome


def _points(total: int) -> list[float]:
    """The costs at which a run is measured, the last one at its end."""
    grown = [FIRST_POINT ** (1 - number / (POINTS - 1)) for number in range(POINTS)]
    return [float(passes) for passes in sorted({max(1, round(share * total)) for share in grown})]
