"""ε-greedy with forgetting: the best arm lately, and now and then any."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, Device, namespace, zeros
from hotswap.bandits.base import BANDITS, Bandit, mean_rewards, refuse_unless, tried_arms
from hotswap.generators import generators, uniform
from hotswap.states import State, replaced

__all__ = ["DrawnState", "EpsilonGreedy"]


class DrawnState(NamedTuple):
    """Sums, and a generator of random numbers."""

    rewards: Array
    """`(R, K)` float64: the discounted sum of the rewards of each arm."""
    counts: Array
    """`(R, K)` float64: the discounted number of trials of each arm."""
    generator: Array
    """`(R, 2)` int64; see `hotswap.generators`."""


@BANDITS.register("epsilon_greedy")
@dataclass(frozen=True)
class EpsilonGreedy(Bandit):
    """Propose the arm with the largest mean reward, and with probability ε any arm, all equally likely.

    With γ = `discount`, every proposal first multiplies the sums of rewards and of trials by γ, so that the means are
    those of the recent past; the index is rewards / counts. An arm that was never tried has the index +∞, so untried
    arms come first, the lowest index before the others. Ties go to the lower index, the larger rate.

    ε = `epsilon` = 0.05 spends one step in twenty on a look around; with 33 arms each is then looked at about once in
    660 steps, and more often where a search walks over it. γ = 0.99 is that of `DiscountedUCB`. ε = 0 is greedy.

    Its index has no width, so by `Bandit.unsure` it is unsure only until every arm has been tried, and between equals.

    Sutton and Barto, "Reinforcement Learning: An Introduction", 2018, sections 2.2 and 2.5; there the running mean has
    a constant step size, which forgets by trials of the arm, whereas γ forgets by steps.
    """

    epsilon: float = 0.05
    discount: float = 0.99

    def __post_init__(self) -> None:
        refuse_unless(0 <= self.epsilon <= 1, self, "epsilon", "in [0, 1]")
        refuse_unless(0 < self.discount <= 1, self, "discount", "in (0, 1]")

    def start(self, runs: int, arms: int, device: Device = None) -> DrawnState:
        """See `Bandit.start`."""
        return DrawnState(
            rewards=zeros((runs, arms), "float64", device),
            counts=zeros((runs, arms), "float64", device),
            generator=generators([0] * runs, device),
        )

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        xp, arms = namespace(state.counts), state.counts.shape[1]
        numbers, generator = uniform(state.generator, 2)
        faded = replaced(
            state,
            rewards=self.discount * state.rewards,
            counts=self.discount * state.counts,
            generator=generator,
        )
        any_arm = xp.asarray(numbers[:, 1] * arms, dtype=xp.int64)  # numbers are below 1, so it is below K
        return xp.where(numbers[:, 0] < self.epsilon, any_arm, self.index(faded).argmax(axis=1)), faded

    def index(self, state: State) -> Array:
        """See `Bandit.index`."""
        tried = tried_arms(state)
        return namespace(tried).where(tried, mean_rewards(state), math.inf)
