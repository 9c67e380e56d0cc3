"""Ours: a race of AdamW with six rates, one with three rates of SGD beside them, and one that knows no length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from hotswap.bench.methods.base import METHODS, Configuration, Method, Training, calibrate
from hotswap.bench.workloads import Batch, Measures, Task
from hotswap.optim.racing.grids import LANES, SGD_LANES
from hotswap.races import race_steps

__all__ = ["RaceAdamW", "RaceAdamWSGD", "RaceOpen"]

LEAST, SHORTEST = 20, 60
"""Steps of a round at least; in budgets of fewer than 1,200 passes, a sixtieth of the budget."""


@METHODS.register("race_adamw")
class RaceAdamW(Method):
    """Six lanes of AdamW at its defaults, from 30 times its rate to a tenth of it."""

    title = "Race (AdamW)"
    ours = True
    first = Configuration({}, "README: Race(AdamW(model.parameters()), total_steps=..., module=model)")
    lanes: ClassVar[int] = LANES

    def bases(self, model: nn.Module) -> list[Optimizer]:
        """The optimizers that race."""
        return [AdamW(model.parameters())]

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Racing:
        """See `Method.begin`."""
        least = min(LEAST, max(1, task.steps // SHORTEST))
        steps = race_steps(self.lanes, task.steps, least=least)
        bases = self.bases(task.model)
        return Racing(task, hotswap.Race(bases, total_steps=steps, least=least, module=task.model, **settings), steps)


@METHODS.register("race_adamw_sgd")
class RaceAdamWSGD(RaceAdamW):
    """The same, with three lanes of SGD with Nesterov momentum beside them, at rates of 1, 0.3 and 0.1."""

    title = "Race (AdamW and SGD)"
    first = Configuration({}, "docs/races.md: Race([AdamW(...), SGD(..., lr=0.1, momentum=0.9, nesterov=True)], ...)")
    lanes = LANES + SGD_LANES

    def bases(self, model: nn.Module) -> list[Optimizer]:
        """See `RaceAdamW.bases`."""
        return [*super().bases(model), SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)]


@METHODS.register("race_open")
class RaceOpen(Method):
    """The same six lanes without a length: rounds are counted in steps, and an average of the weights is given."""

    title = "Race (AdamW, unknown length)"
    ours = True
    first = Configuration({}, "docs/races.md: Race(AdamW(...), module=model), measured inside of average()")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Open:
        """See `Method.begin`."""
        return Open(task, hotswap.Race([AdamW(task.model.parameters())], module=task.model, **settings))


class Counted(Training):
    """A race, whose lanes have their passes, and whose winner has the rest of the budget."""

    def __init__(self, task: Task, optimizer: hotswap.Race) -> None:
        super().__init__(task)
        self.optimizer = optimizer

    def step(self, batch: Batch) -> None:
        """See `Training.step`. The race counts for itself, lanes that are one program, too."""
        self.optimizer.step(lambda: self.task.loss(batch))

    @property
    def cost(self) -> float:
        """See `Training.cost`."""
        return self.optimizer.cost.passes


class Racing(Counted):
    """A race as long as its budget allows."""

    def __init__(self, task: Task, optimizer: hotswap.Race, steps: int) -> None:
        super().__init__(task, optimizer)
        self.steps = steps

    @property
    def is_over(self) -> bool:
        """See `Training.is_over`."""
        return self.optimizer.cost.plain >= self.steps or super().is_over


class Open(Counted):
    """A race that may end at any time. What is measured, and handed over, is the average."""

    def measure(self) -> Measures:
        """See `Training.measure`."""
        with self.optimizer.average():
            if self.optimizer.winner is not None:
                calibrate(self.task)
            return super().measure()
