"""Ours: a race of AdamW with six rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import AdamW

import hotswap
from hotswap.bench.methods.base import METHODS, Configuration, Method, Training
from hotswap.bench.workloads import Batch, Task
from hotswap.optim.racing.grids import LANES
from hotswap.races import race_steps

__all__ = ["RaceAdamW"]

LEAST, SHORTEST = 20, 60
"""Steps of a round at least; in budgets of fewer than 1,200 passes, a sixtieth of the budget."""


@METHODS.register("race_adamw")
class RaceAdamW(Method):
    """Six lanes of AdamW at its defaults, from 30 times its rate to a tenth of it."""

    title = "Race (AdamW)"
    ours = True
    first = Configuration({}, "README: Race(AdamW(model.parameters()), total_steps=..., module=model)")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Racing:
        """See `Method.begin`."""
        least = min(LEAST, max(1, task.steps // SHORTEST))
        steps = race_steps(LANES, task.steps, least=least)
        base = AdamW(task.model.parameters())
        return Racing(task, hotswap.Race(base, total_steps=steps, least=least, module=task.model, **settings), steps)


class Racing(Training):
    """A race as long as its budget allows: its lanes have their passes, and the winner has the rest."""

    def __init__(self, task: Task, optimizer: hotswap.Race, steps: int) -> None:
        super().__init__(task)
        self.optimizer, self.steps = optimizer, steps

    def step(self, batch: Batch) -> None:
        """See `Training.step`. The race counts for itself, lanes that are one program, too."""
        self.optimizer.step(lambda: self.task.loss(batch))

    @property
    def cost(self) -> float:
        """See `Training.cost`."""
        return self.optimizer.cost.passes

    @property
    def is_over(self) -> bool:
        """See `Training.is_over`."""
        return self.optimizer.cost.plain >= self.steps or super().is_over
