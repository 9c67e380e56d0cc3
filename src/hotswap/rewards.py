"""r, the reward: what a trial's loss says about the arm that made it.

For one trial as plain numbers, or for arrays of them: `(R,)`, R runs, or `(R, T)`, T trials of each. A reward is always
finite and within ±bound: one NaN in an arm's statistics would never leave its mean again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from hotswap.arrays import Array, Device, bounded, namespace, zeros
from hotswap.errors import SettingError
from hotswap.registry import Registry

__all__ = ["REWARDS", "LogReduction", "RelativeReduction", "Reward"]


class Reward(ABC):
    """Turns the losses before and after a trial into a reward. Settings only; `scale` is its state."""

    accepts_negative: bool
    """Whether a loss below zero means anything to this reward."""

    @abstractmethod
    def grant(self, scale: Array, before: Array, after: Array) -> Array:
        """Rewards of trials with losses `after` from a start at `before`: of one shape, or shapes that broadcast."""

    def start(self, runs: int, device: Device = None) -> Array:
        """The state before the first step: a running scale `(R,)`, 0 while nothing was seen."""
        return zeros((runs,), "float64", device)

    def follow(self, scale: Array, before: Array) -> Array:
        """The state after seeing the start loss `before` `(R,)` of a step; `grant` is given this one."""
        return scale


REWARDS: Registry[type[Reward]] = Registry("reward")
"""Every reward that a study's file can name."""


@REWARDS.register("log_reduction")
@dataclass(frozen=True, kw_only=True)
class LogReduction(Reward):
    """The paper's reward, `log f(before) − log f(after)`: equal factors are worth the same at any loss.

    A loss of exactly 0 is fine (`log(f + tiny)`; float32 cross-entropy reaches it). A trial that is NaN or infinite
    earns −`bound`. A negative loss has no logarithm: use `RelativeReduction` for objectives that go below zero.
    """

    bound: float = 100.0
    tiny: float = 1e-15
    accepts_negative = False

    def __post_init__(self) -> None:
        _check_bound("LogReduction", self.bound)
        if not (math.isfinite(self.tiny) and self.tiny > 0):
            raise SettingError(f"LogReduction(tiny={self.tiny!r}): tiny must be positive and finite.")

    def grant(self, scale: Array, before: Array, after: Array) -> Array:
        """See `Reward.grant`."""
        xp = namespace(after)
        usable = xp.where(xp.isfinite(after) & (after >= 0), after, math.inf)
        reward = xp.log(before + self.tiny) - xp.log(usable + self.tiny)
        return bounded(reward, self.bound)


@REWARDS.register("relative_reduction")
@dataclass(frozen=True, kw_only=True)
class RelativeReduction(Reward):
    """`(f(before) − f(after)) / scale`, for losses that may be negative (Gaussian likelihoods, ELBOs).

    `scale` is a running mean of `|f(before)|` over about `1 / (1 − memory)` steps, so that a loss on its way through
    zero does not make one step worth more than all the others.
    """

    bound: float = 100.0
    memory: float = 0.99
    accepts_negative = True

    def __post_init__(self) -> None:
        _check_bound("RelativeReduction", self.bound)
        if not 0 <= self.memory < 1:
            raise SettingError(f"RelativeReduction(memory={self.memory!r}): memory must be in [0, 1).")

    def follow(self, scale: Array, before: Array) -> Array:
        """See `Reward.follow`."""
        size = abs(before)
        return namespace(size).where(scale == 0, size, self.memory * scale + (1 - self.memory) * size)

    def grant(self, scale: Array, before: Array, after: Array) -> Array:
        """See `Reward.grant`."""
        xp = namespace(after)
        usable = xp.where(xp.isfinite(after), after, math.inf)
        reward = (before - usable) / xp.clip(scale, 1e-15, None)
        return bounded(reward, self.bound)


def _check_bound(name: str, bound: float) -> None:
    if not (math.isfinite(bound) and bound > 0):
        raise SettingError(f"{name}(bound={bound!r}): bound must be positive and finite.")
