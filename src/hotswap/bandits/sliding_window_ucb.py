"""Sliding-window UCB: only the latest trials count (Garivier and Moulines 2008)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hotswap.arrays import Array, Device, namespace, places, zeros
from hotswap.bandits.base import (
    BANDITS,
    Bandit,
    check_exploration,
    refuse_unless,
    trials_as_arrays,
    upper_confidence,
)
from hotswap.states import State, replaced

__all__ = ["SlidingWindowUCB", "WindowState"]


class WindowState(NamedTuple):
    """The trials of the window, W of them, in two ring buffers."""

    arms: Array
    """`(R, W)` int64: the arm of each trial; K, the number of arms, where there has been none yet."""
    paid: Array
    """`(R, W)` float64: the reward of each trial; 0 where there has been none yet."""
    position: Array
    """`(R,)` int64: where the next trial is written."""
    rewards: Array
    """`(R, K)` float64: the sum of the rewards of each arm in the window."""
    counts: Array
    """`(R, K)` float64: the number of trials of each arm in the window."""


@BANDITS.register("sliding_window_ucb")
@dataclass(frozen=True)
class SlidingWindowUCB(Bandit):
    """Propose the arm with the largest mean reward plus confidence width, of the last `window` trials only.

    With c = `exploration`, and per arm the sums of its rewards and of its trials within the window,

        ucb = rewards / counts + sqrt(c · ln(n) / counts),    n = Σ counts = min(trials so far, window).

    An arm without a trial in the window has ucb = +∞ and is tried again, the lowest index first. So no arm stays away
    for much longer than a window, whatever it paid before: where `DiscountedUCB` lets the past fade, this bandit
    forgets it at once and completely. After an abrupt change it is free of the old rewards after one window.

    The window counts trials, not steps; a step of the paper's search has about two. The default of 1000 is about 400
    steps. With 33 arms a shorter one would spend many of its trials on arms that have just dropped out of it, since it
    must be well above the number of arms. `exploration` is that of `DiscountedUCB`, so that the two differ only in how
    they forget; the theory needs c > 1/2 for rewards between 0 and 1.

    The sums are made afresh from the window after every call, so that no rounding error stays in them.

    Garivier and Moulines, "On upper-confidence bound policies for non-stationary bandit problems", 2008, SW-UCB.
    """

    window: int = 1000
    exploration: float = 1e-8

    def __post_init__(self) -> None:
        whole = isinstance(self.window, int) and not isinstance(self.window, bool)
        refuse_unless(whole and self.window >= 1, self, "window", "a whole number of at least 1")
        check_exploration(self, self.exploration)

    def start(self, runs: int, arms: int, device: Device = None) -> WindowState:
        """See `Bandit.start`."""
        return WindowState(
            arms=zeros((runs, self.window), "int64", device) + arms,
            paid=zeros((runs, self.window), "float64", device),
            position=zeros((runs,), "int64", device),
            rewards=zeros((runs, arms), "float64", device),
            counts=zeros((runs, arms), "float64", device),
        )

    def bounds(self, arms: int) -> dict[str, tuple[float, float]]:
        """See `Bandit.bounds`."""
        return super().bounds(arms) | {"arms": (0, arms), "position": (0, self.window - 1)}

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        return self.index(state).argmax(axis=1), state

    def index(self, state: State) -> Array:
        """See `Bandit.index`."""
        return upper_confidence(state.rewards, state.counts, state.counts.sum(axis=1), self.exploration)

    def observe(self, state: State, arm: Array, reward: Array, tried: Array | None = None) -> State:
        """See `Bandit.observe`. Trials are written one behind the other, over the oldest ones."""
        arm, reward, happened = trials_as_arrays(state.paid, arm, reward, tried)
        xp = namespace(arm)
        number = happened.cumsum(axis=1) - 1  # each trial's number among the trials that happened
        total = happened.sum(axis=1)
        fits = happened & (number >= total[:, None] - self.window)  # a trial that others overwrite at once is left out
        slot = xp.where(fits, (state.position[:, None] + number) % self.window, self.window)
        arms = _written(state.arms, slot, arm)
        paid = _written(state.paid, slot, reward)
        there = arms[:, :, None] == places(state.counts.shape[1], arms)  # (R, W, K); an empty slot is at no arm
        return replaced(
            state,
            arms=arms,
            paid=paid,
            position=(state.position + total) % self.window,
            rewards=xp.where(there, paid[:, :, None], 0.0).sum(axis=1),
            counts=xp.asarray(there.sum(axis=1), dtype=xp.float64),
        )


def _written(buffer: Array, slot: Array, value: Array) -> Array:
    """The buffer `(R, W)` with values `(R, T)` in the slots `(R, T)`; slot W is for values that are to be dropped."""
    if isinstance(buffer, np.ndarray):
        longer = np.concatenate([buffer, buffer[:, :1]], axis=1)
        np.put_along_axis(longer, slot, value, axis=1)
    else:
        xp = namespace(buffer)
        longer = xp.cat([buffer, buffer[:, :1]], axis=1).scatter(1, slot, value)
    return longer[:, :-1]
