"""TensorBoard: the lanes of a race, or the rates, trials and statistics of a bandit, with one line a step.

log = TensorBoardLog(writer, optimizer)
for x, y in loader:
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step(loss)
    optimizer.zero_grad()
    log()
"""

from __future__ import annotations

import math
from typing import Any

from hotswap.errors import SettingError
from hotswap.optim import HotSwap, StepRecord
from hotswap.race import Race

__all__ = ["TensorBoardLog"]


class TensorBoardLog:
    """Writes what the latest step of a race or of a hot-swapped optimizer did.

    A race gets a curve of the rate and one of the loss for each lane, which have points where the lane has the model,
    and one of the number of the lane in the model. Reading the loss waits for the device, so log every tenth step where
    this matters.

    Args:
        writer: a `torch.utils.tensorboard.SummaryWriter`, or anything with its `add_scalar`.
        optimizer: the race, or the hot-swapped optimizer.
        statistics_every: write count and mean reward of every arm each so many steps; 0 for never. Races have no arms.
        prefix: stands before every tag.
    """

    def __init__(
        self, writer: Any, optimizer: Race | HotSwap, statistics_every: int = 100, prefix: str = "hotswap"
    ) -> None:
        if not isinstance(optimizer, Race | HotSwap):
            raise SettingError(f"TensorBoardLog: pass a Race or a HotSwap; a {type(optimizer).__name__} is neither.")
        if statistics_every < 0:
            raise SettingError(f"TensorBoardLog(statistics_every={statistics_every}): it must not be negative.")
        self.writer, self.optimizer, self.prefix = writer, optimizer, prefix
        self.statistics_every, self.steps = statistics_every, 0

    def __call__(self, step: int | None = None) -> None:
        """Log the latest step; `step` is its number, by default counted from 0."""
        number = self.steps if step is None else step
        self.steps = number + 1
        optimizer = self.optimizer
        if isinstance(optimizer, Race):
            for name, value in optimizer.curves().items():
                self._add(name, value, number)
            return
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
