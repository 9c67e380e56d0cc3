"""TensorBoard: rates, trials, rewards and the bandit's statistics, with one line a step.

log = TensorBoardLog(writer, optimizer)
for x, y in loader:
    optimizer.step(lambda: loss_fn(model(x), y))
    log()
"""

from __future__ import annotations

import math
from typing import Any

from hotswap.errors import SettingError
from hotswap.optim import HotSwap, StepRecord

__all__ = ["TensorBoardLog"]


class TensorBoardLog:
    """Writes what the latest step of a hot-swapped optimizer did.

    Args:
        writer: a `torch.utils.tensorboard.SummaryWriter`, or anything with its `add_scalar`.
        optimizer: the hot-swapped optimizer.
        statistics_every: write count and mean reward of every arm each so many steps; 0 for never.
        prefix: stands before every tag.
    """

    def __init__(self, writer: Any, optimizer: HotSwap, statistics_every: int = 100, prefix: str = "hotswap") -> None:
        if not isinstance(optimizer, HotSwap):
            raise SettingError(f"TensorBoardLog: a {type(optimizer).__name__} is not hot-swapped; pass a HotSwap.")
        if statistics_every < 0:
            raise SettingError(f"TensorBoardLog(statistics_every={statistics_every}): it must not be negative.")
        self.writer, self.optimizer, self.prefix = writer, optimizer, prefix
        self.statistics_every, self.steps = statistics_every, 0

    def __call__(self, step: int | None = None) -> None:
        """Log the latest step; `step` is its number, by default counted from 0."""
        number = self.steps if step is None else step
        self.steps = number + 1
        optimizer = self.optimizer
        if optimizer.last_step is None:
            return
        self._add_search(optimizer.last_step, number)
        if self.statistics_every and number % self.statistics_every == 0:
            for arm, row in enumerate(optimizer.statistics()):
                self._add(f"count/{arm:02}", row.count, number)
                self._add(f"mean_reward/{arm:02}", row.mean, number)

    def _add_search(self, record: StepRecord, step: int) -> None:
        for name, value in record.values.items():
            if isinstance(value, int | float):
                self._add(name, float(value), step)
        self._add("trials", float(len(record.trials)), step)
        if math.isfinite(record.loss_before):
            self._add("loss_before", record.loss_before, step)
        if record.trials:
            self._add("loss_after", record.loss_after, step)
            self._add("reward", max(record.rewards), step)

    def _add(self, name: str, value: float, step: int) -> None:
        self.writer.add_scalar(f"{self.prefix}/{name}", value, step)
