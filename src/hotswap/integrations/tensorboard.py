"""TensorBoard: rates, trials, rewards and the bandit's statistics, or the lanes of a race, with one line a step.

log = TensorBoardLog(writer, optimizer)
for x, y in loader:
    optimizer.step(lambda: loss_fn(model(x), y))
    log()
"""

from __future__ import annotations

import math
from typing import Any

from hotswap.arms import Value
from hotswap.errors import SettingError
from hotswap.optim import HotSwap, Race, RaceStep, StepRecord

__all__ = ["TensorBoardLog"]


class TensorBoardLog:
    """Writes what the latest step of a hot-swapped optimizer, or of a race, did.

    Args:
        writer: a `torch.utils.tensorboard.SummaryWriter`, or anything with its `add_scalar`.
        optimizer: the hot-swapped optimizer, or the race. Every living lane of a race has curves of its loss and of its
            values, such as `lane_2/loss` and `lane_2/lr`; with several bases, `lane_7_SGD/loss`. Others say how many
            live, which one leads, and by what the schedule multiplies all rates: `lanes`, `leader`, `factor`.
        statistics_every: write count and mean reward of every arm each so many steps; 0 for never. A race has none.
        prefix: stands before every tag.
    """

    def __init__(
        self, writer: Any, optimizer: HotSwap | Race, statistics_every: int = 100, prefix: str = "hotswap"
    ) -> None:
        if not isinstance(optimizer, HotSwap | Race):
            raise SettingError(
                f"TensorBoardLog: a {type(optimizer).__name__} is not hot-swapped; pass a HotSwap or a Race."
            )
        if statistics_every < 0:
            raise SettingError(f"TensorBoardLog(statistics_every={statistics_every}): it must not be negative.")
        self.writer, self.optimizer, self.prefix = writer, optimizer, prefix
        self.statistics_every, self.steps = statistics_every, 0
        self._lanes = _tags_of_lanes(optimizer) if isinstance(optimizer, Race) else []

    def __call__(self, step: int | None = None) -> None:
        """Log the latest step; `step` is its number, by default counted from 0."""
        number = self.steps if step is None else step
        self.steps = number + 1
        optimizer = self.optimizer
        if optimizer.last_step is None:
            return
        if isinstance(optimizer.last_step, RaceStep):
            self._add_lanes(optimizer.last_step, number)
        else:
            self._add_search(optimizer.last_step, number)
        if isinstance(optimizer, HotSwap) and self.statistics_every and number % self.statistics_every == 0:
            for arm, row in enumerate(optimizer.statistics()):
                self._add(f"count/{arm:02}", row.count, number)
                self._add(f"mean_reward/{arm:02}", row.mean, number)

    def _add_search(self, record: StepRecord, step: int) -> None:
        self._add_values("", record.values, step)
        self._add("trials", float(len(record.trials)), step)
        if math.isfinite(record.loss_before):
            self._add("loss_before", record.loss_before, step)
        if record.trials:
            self._add("loss_after", record.loss_after, step)
            self._add("reward", max(record.rewards), step)

    def _add_lanes(self, record: RaceStep, step: int) -> None:
        for lane, values in record.values.items():
            self._add_values(f"{self._lanes[lane]}/", values, step)
            if math.isfinite(record.losses[lane]):
                self._add(f"{self._lanes[lane]}/loss", record.losses[lane], step)
        self._add("lanes", float(len(record.values)), step)
        self._add("leader", float(record.leader), step)
        self._add("factor", record.factor, step)

    def _add_values(self, owner: str, values: dict[str, Value], step: int) -> None:
        for name, value in values.items():
            if isinstance(value, int | float):
                self._add(owner + name, float(value), step)

    def _add(self, name: str, value: float, step: int) -> None:
        self.writer.add_scalar(f"{self.prefix}/{name}", value, step)


def _tags_of_lanes(race: Race) -> list[str]:
    """What stands before the tags of each lane: its number, and its optimizer where they differ."""
    rows = race.standings()
    several = len({row.optimizer for row in rows}) > 1
    return [f"lane_{row.lane}" + (f"_{row.optimizer.replace(' ', '_')}" if several else "") for row in rows]
