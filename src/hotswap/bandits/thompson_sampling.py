"""Thompson sampling with forgetting: a Normal posterior of each arm's mean, and a draw from each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, Device, added_at, bounded, namespace, zeros
from hotswap.bandits.base import BANDITS, Bandit, best_two_overlap, refuse_unless, trials_as_arrays, tried_arms
from hotswap.generators import generators, normal
from hotswap.states import State, replaced

__all__ = ["PosteriorState", "ThompsonSampling"]


class PosteriorState(NamedTuple):
    """Sums that give the posteriors, and a generator of random numbers."""

    rewards: Array
    """`(R, K)` float64: the discounted sum of the rewards of each arm."""
    squares: Array
    """`(R, K)` float64: the discounted sum of their squares."""
    counts: Array
    """`(R, K)` float64: the discounted number of trials of each arm."""
    generator: Array
    """`(R, 2)` int64; see `hotswap.generators`."""


@BANDITS.register("thompson_sampling")
@dataclass(frozen=True)
class ThompsonSampling(Bandit):
    """Draw a mean for each arm from what is known of it, and propose the arm whose draw is largest.

    So an arm is proposed as often as it is thought to be the best. Every proposal first multiplies the sums of rewards,
    of their squares and of trials by γ = `discount`. With n = counts, m = rewards / n, τ = `prior`, and σ² the variance
    of the arm's rewards, the posterior of its mean under the prior Normal(0, τ²) is

        Normal(m · n·τ² / (n·τ² + σ²),  σ²·τ² / (n·τ² + σ²)).

    An arm that is untried or forgotten has the prior, which is wide: so it will soon be drawn. The variance is
    estimated. With S = squares − rewards² / n and f = n − 1 where n > 1, and both 0 elsewhere,

        pooled = (ΣS + noise²) / (Σf + 1),    σ² = (S + pooled) / (f + 1):

    an arm with few trials has the variance of all arms together, which begins at `noise`², and one with many its own.

    A reward outside of ±`bound` counts as that bound. A trial that overflows earns −100, where usual rewards are about
    0.01; one of them would make its arm's variance, and that of all others, larger than anything worth knowing.

    γ = 0.99 is that of `DiscountedUCB`. `bound` = 1 is a loss that changes by the factor e, as bad or as good as a
    single step needs to be told; `prior` = 1 is as wide as that; `noise` = 0.01 is the size of usual rewards, and
    weighs no more than one trial.

    Raj and Kalyani, "Taming non-stationary bandits: a Bayesian approach", 2017, for the discounting; Russo et al., "A
    tutorial on Thompson sampling", 2018. They know the variance; here it is estimated, and then taken as known.
    """

    discount: float = 0.99
    prior: float = 1.0
    noise: float = 0.01
    bound: float = 1.0

    def __post_init__(self) -> None:
        refuse_unless(0 < self.discount <= 1, self, "discount", "in (0, 1]")
        for name in ("prior", "noise", "bound"):
            value = getattr(self, name)
            refuse_unless(math.isfinite(value) and value > 0, self, name, "positive and finite")

    def start(self, runs: int, arms: int, device: Device = None) -> PosteriorState:
        """See `Bandit.start`."""
        return PosteriorState(
            rewards=zeros((runs, arms), "float64", device),
            squares=zeros((runs, arms), "float64", device),
            counts=zeros((runs, arms), "float64", device),
            generator=generators([0] * runs, device),
        )

    def bounds(self, arms: int) -> dict[str, tuple[float, float]]:
        """See `Bandit.bounds`."""
        return super().bounds(arms) | {"squares": (0, math.inf)}

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        faded = replaced(
            state,
            rewards=self.discount * state.rewards,
            squares=self.discount * state.squares,
            counts=self.discount * state.counts,
        )
        draws, generator = self._draws(faded)
        return draws.argmax(axis=1), replaced(faded, generator=generator)

    def index(self, state: State) -> Array:
        """See `Bandit.index`: the draws that a proposal would make from the posteriors as they are."""
        return self._draws(state)[0]

    def observe(self, state: State, arm: Array, reward: Array, tried: Array | None = None) -> State:
        """See `Bandit.observe`."""
        arm, reward, happened = trials_as_arrays(state.counts, arm, reward, tried)
        reward = bounded(reward, self.bound)
        squares = added_at(state.squares, arm, reward * reward, happened)
        return replaced(super().observe(state, arm, reward, happened), squares=squares)

    def unsure(self, state: State) -> Array:
        """See `Bandit.unsure`; an arm reaches as far from the mean of its posterior as the standard deviation."""
        mean, variance = self.posterior(state)
        return best_two_overlap(mean, namespace(variance).sqrt(variance), tried_arms(state))

    def posterior(self, state: State) -> tuple[Array, Array]:
        """`(R, K)` each: the mean and the variance of the posterior of each arm's mean."""
        xp, n, prior = namespace(state.counts), state.counts, self.prior**2
        often = n > 1
        spread = state.squares - state.rewards * state.rewards / xp.where(often, n, 1.0)
        spread = xp.where(often & (spread > 0), spread, 0.0)  # rounding may take it below zero
        freedom = xp.where(often, n - 1, 0.0)
        pooled = (spread.sum(axis=1) + self.noise**2) / (freedom.sum(axis=1) + 1)
        variance = (spread + pooled[:, None]) / (freedom + 1)
        return state.rewards * prior / (n * prior + variance), variance * prior / (n * prior + variance)

    def _draws(self, state: State) -> tuple[Array, Array]:
        """One number of each posterior, and the generator to draw from next."""
        mean, variance = self.posterior(state)
        numbers, generator = normal(state.generator, state.counts.shape[1])
        return mean + namespace(mean).sqrt(variance) * numbers, generator
