"""What a race tells about itself: a record of the last step, the standings, and what it has cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from hotswap.arms import Value
from hotswap.optim.racing.bases import Bases

__all__ = ["Brief", "Cost", "LaneStanding", "RaceStep", "Standings"]


@dataclass(frozen=True, kw_only=True)
class RaceStep:
    """What one step of a race did.

    Attributes:
        step: Which one it was, counted from 0.
        factor: By what all rates were multiplied: the schedule's factor, and less where the race began again or the
            winner went back.
        leader: The lane that the model holds.
        values: What each living lane has applied, in the first parameter group, by the number of the lane.
        optimizers: The optimizer of each of them, by the number of the lane.
        losses: The loss of each of them before the step; in several processes, this one's own. NaN for a step without a
            closure.
        aux: What the closure returned beside the leader's loss.
        rolled_back: Whether the winner had diverged, and went back to its snapshot in place of a step.
    """

    step: int
    factor: float
    leader: int
    values: dict[int, dict[str, Value]]
    losses: dict[int, float]
    optimizers: dict[int, str] = field(default_factory=dict)
    aux: object = None
    rolled_back: bool = False

    @property
    def loss_before(self) -> float:
        """The leader's loss before the step."""
        return self.losses.get(self.leader, math.nan)

    @property
    def arm(self) -> int | None:
        """The arm that the leader has taken; None where it went back instead."""
        return None if self.rolled_back else self.leader


class Brief(NamedTuple):
    """What a step of the winner did, in so few words that a step hardly pays for a record that nobody reads."""

    step: int
    factor: float
    leader: int
    scale: float
    """By what else the rate of the first parameter group was multiplied, by a scheduler for instance."""
    loss: Tensor
    aux: object
    rolled_back: bool

    def written(self, bases: Bases) -> RaceStep:
        """The record of that step; it waits for the loss."""
        return RaceStep(
            step=self.step,
            factor=self.factor,
            leader=self.leader,
            values={self.leader: bases.applied(self.leader, self.scale * self.factor)},
            losses={self.leader: self.loss.item()},
            optimizers={self.leader: bases.driver(self.leader).name},
            aux=self.aux,
            rolled_back=self.rolled_back,
        )


class Cost(NamedTuple):
    """Forward and backward passes, counted in pairs."""

    passes: int
    """Of all lanes so far."""
    plain: int
    """What a run without a race would have had."""


@dataclass(frozen=True)
class LaneStanding:
    """Where one lane stands."""

    lane: int
    values: dict[str, Value]
    racing: bool
    loss: float
    """Its mean loss where lanes were last compared; NaN before the first round ends."""
    step: int | None = None
    """The step at which it went out, or won; None while it is racing."""
    reason: str = ""
    """Why."""
    optimizer: str = ""
    """The class of its optimizer; with a number, where several bases are of this class."""


@dataclass(frozen=True)
class Standings(Sequence[LaneStanding]):
    """One row per lane, optimizer by optimizer, those with large rates first. Print it."""

    rows: tuple[LaneStanding, ...]
    leader: int
    notes: tuple[str, ...] = ()
    """What else has happened: the race began again, the winner went back."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> LaneStanding:  # type: ignore[override]  # rows, not slices of them
        return self.rows[place]

    def __iter__(self) -> Iterator[LaneStanding]:
        return iter(self.rows)

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for row in self.rows for name in row.values))
        several = len({row.optimizer for row in self.rows}) > 1
        lines = [["lane", *(["optimizer"] if several else []), *names, "loss", ""]]
        for row in self.rows:
            mark = "<- leads" if row.lane == self.leader and row.racing else ""
            told = f"{row.reason} (step {row.step})" if row.step is not None else mark or "racing"
            loss = "" if math.isnan(row.loss) else f"{row.loss:.4g}"
            values = [_short(row.values[name]) if name in row.values else "" for name in names]
            lines.append([str(row.lane), *([row.optimizer] if several else []), *values, loss, told])
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
        table = [
            "  ".join([*(cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=True)), line[-1]]).rstrip()
            for line in lines
        ]
        return "\n".join([*table, *self.notes])

    __repr__ = __str__


def _short(value: Value) -> str:
    return f"({', '.join(f'{item:g}' for item in value)})" if isinstance(value, tuple) else f"{value:.3g}"
