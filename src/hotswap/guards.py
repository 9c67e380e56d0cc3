"""A guard for runs without a search: a snapshot, and the way back to it when the loss has risen for too long.

A search refuses a step that would raise the loss of its minibatch. Without one, a rate that is too large shows only in
the losses of the steps after it. The guard watches their running mean: when that stands too high above its lowest value
for too many steps, or when a loss is not finite, the run goes back to its latest snapshot, the bandit is told what the
arm has earned, and no rate as large is taken again until the next snapshot.

One value per run, `(R,)`; an optimizer, which has one run, has plain numbers in place of arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, Device, namespace, zeros
from hotswap.errors import SettingError
from hotswap.rewards import Reward

__all__ = ["Guard", "GuardState", "Judgement"]


class GuardState(NamedTuple):
    """What the guard of a run remembers."""

    steps: Array
    """`(R,)` int64: how many steps the run is away from its snapshot; −1 before there is one."""
    above: Array
    """`(R,)` int64: for how many steps in a row the running mean has been too high."""
    mean: Array
    """`(R,)` float64: the running mean of the loss."""
    lowest: Array
    """`(R,)` float64: the lowest it has been."""
    kept: Array
    """`(R,)` float64: what it was at the snapshot."""
    ceiling: Array
    """`(R,)` int64: the place in its row of the largest rate that may be taken; 0 for any."""


class Judgement(NamedTuple):
    """What the guard says at the beginning of a step, when its loss is known."""

    state: GuardState
    back: Array
    """`(R,)` whether the run goes back to its snapshot and takes no step."""
    keep: Array
    """`(R,)` whether a snapshot is to be taken of the run as it is."""
    earned: Array
    """`(R,)` what the arm has earned that the run goes back because of: a reward, below zero."""


@dataclass(frozen=True)
class Guard:
    """Goes back to a snapshot when the loss has risen by a factor for a number of steps, or is not finite.

    The first snapshot is taken in the first step whose loss is finite.

    factor: what counts as risen: the running mean is so many times its lowest value. For rewards that allow losses
        below zero, it has risen by log(factor) in units of the reward.
    steps: for how many steps in a row it must have; a loss that is not finite needs none.
    every: how many steps there are between snapshots. None is taken while the mean is too high.
    memory: how much of the running mean each step keeps; 0.95 is a mean over about twenty steps.
    """

    factor: float = 2.0
    steps: int = 20
    every: int = 100
    memory: float = 0.95

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 1):
            raise SettingError(f"Guard(factor={self.factor!r}): factor must be finite and larger than 1.")
        for name, value in (("steps", self.steps), ("every", self.every)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(f"Guard({name}={value!r}): {name} must be a whole number of at least 1.")
        if not 0 <= self.memory < 1:
            raise SettingError(f"Guard(memory={self.memory!r}): memory must be in [0, 1).")

    def start(self, runs: int, device: Device = None) -> GuardState:
        """The state before the first step, as arrays."""
        none, nothing = zeros((runs,), "float64", device), zeros((runs,), "int64", device)
        return GuardState(nothing - 1, nothing, none, none, none, nothing)

    def judge(self, state: GuardState, loss: Array, place: Array, row: int, reward: Reward, scale: Array) -> Judgement:
        """Look at the loss of one more step, before the step is taken.

        Args:
            state: What the guard remembers.
            loss: `(R,)` float64, on this step's minibatch, at the parameters as they are.
            place: `(R,)` int64: where in its row of rates the arm is that was taken last, 0 for the largest rate.
            row: How many rates there are in a row.
            reward: What says how much the mean has risen.
            scale: The state of the reward.
        """
        xp = namespace(loss)
        fresh, finite = state.steps < 0, xp.isfinite(loss)
        mean = xp.where(fresh, loss, self.memory * state.mean + (1 - self.memory) * loss)
        mean = xp.where(finite, mean, math.inf)  # −∞ too
        lowest = xp.where(fresh & finite, mean, state.lowest)
        lowest = xp.where(mean < lowest, mean, lowest)
        earned = reward.grant(scale, lowest, mean)
        high = earned <= -math.log(self.factor)
        above = xp.where(high, state.above + 1, 0)
        back = xp.logical_not(fresh) & ((above >= self.steps) | xp.logical_not(finite))
        due = fresh | (state.steps + 1 >= self.every)
        keep = due & finite & xp.logical_not(high | back)
        lower = xp.minimum(place + 1, xp.full_like(place, row - 1))
        return Judgement(
            GuardState(
                steps=xp.where(back | keep, 0, xp.where(fresh, -1, state.steps + 1)),
                above=xp.where(back, 0, above),
                mean=xp.where(back, state.kept, mean),
                lowest=xp.where(back, state.kept, lowest),
                kept=xp.where(keep, mean, state.kept),
                ceiling=xp.where(back, lower, xp.where(keep, 0, state.ceiling)),
            ),
            back,
            keep,
            earned,
        )

    @staticmethod
    def lowered(state: GuardState, arm: Array, row: int) -> Array:
        """The arm, or, where its rate is larger than may be taken, the largest of its row that may."""
        place = arm % row
        return arm - place + namespace(arm).maximum(place, state.ceiling)
