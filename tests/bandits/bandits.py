"""Bandits with states of all kinds, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hotswap import Bandit, DiscountedUCB
from hotswap.arrays import Array, Device, namespace, places, zeros
from hotswap.bandits.base import mean_rewards
from hotswap.generators import generators, uniform
from hotswap.states import replaced


class Remembering(NamedTuple):
    rewards: Array
    counts: Array
    step: Array
    latest: Array


@dataclass(frozen=True)
class WithLatest(DiscountedUCB):
    """Discounted UCB with one field more: the arm that was proposed last."""

    def start(self, runs: int, arms: int, device: Device = None) -> Remembering:
        sums = super().start(runs, arms, device)
        return Remembering(sums.rewards, sums.counts, sums.step, zeros((runs,), "int64", device))

    def propose(self, state: Remembering) -> tuple[Array, Remembering]:
        arm, after = super().propose(state)
        return arm, replaced(after, latest=arm)


class Drawn(NamedTuple):
    rewards: Array
    counts: Array
    generator: Array


@dataclass(frozen=True)
class EpsilonGreedy(Bandit):
    """The best arm so far; now and then any."""

    epsilon: float = 0.1

    def start(self, runs: int, arms: int, device: Device = None) -> Any:
        sums = super().start(runs, arms, device)
        return Drawn(sums.rewards, sums.counts, generators([0] * runs, device))

    def propose(self, state: Any) -> tuple[Array, Any]:
        xp = namespace(state.counts)
        numbers, generator = uniform(state.generator, 2)
        any_arm = xp.asarray(numbers[:, 1] * state.counts.shape[1], dtype=xp.int64)
        arm = xp.where(numbers[:, 0] < self.epsilon, any_arm, self.index(state).argmax(axis=1))
        return arm, replaced(state, generator=generator)

    def index(self, state: Any) -> Array:
        return mean_rewards(state)


@dataclass(frozen=True)
class DrawnData:
    rewards: Array
    counts: Array
    generator: Array


@dataclass(frozen=True)
class EpsilonGreedyData(EpsilonGreedy):
    """The same with a dataclass for its state."""

    def start(self, runs: int, arms: int, device: Device = None) -> DrawnData:
        state = super().start(runs, arms, device)
        return DrawnData(state.rewards, state.counts, state.generator)


class Turn(NamedTuple):
    position: Array


@dataclass(frozen=True)
class InTurn(Bandit):
    """One arm after the other, whatever they pay; its state has none of the usual fields."""

    arms: int

    def start(self, runs: int, arms: int, device: Device = None) -> Turn:
        return Turn(zeros((runs,), "int64", device))

    def propose(self, state: Turn) -> tuple[Array, Turn]:
        return state.position, Turn((state.position + 1) % self.arms)

    def observe(self, state: Turn, arm: Array, reward: Array, tried: Array | None = None) -> Turn:
        return state

    def index(self, state: Turn) -> Array:
        return 0.0 * (state.position[:, None] + places(self.arms, state.position))
