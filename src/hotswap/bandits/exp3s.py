"""Exp3.S, the bandit that expects the worst and changes of the best arm (Auer, Cesa-Bianchi, Freund, Schapire 2002)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, Device, namespace, places, zeros
from hotswap.bandits.base import BANDITS, Bandit, refuse_unless, trials_as_arrays
from hotswap.generators import generators, uniform
from hotswap.states import State, replaced

__all__ = ["Exp3S", "WeightState"]

NONE = -1  # no arm was drawn, or its trial was learned from already


class WeightState(NamedTuple):
    """The weights of the arms, the latest draw, the scale of the rewards, and sums for tables of statistics."""

    weights: Array
    """`(R, K)` float64: the logarithms of the weights, which add up to 1."""
    drawn: Array
    """`(R,)` int64: the arm that was drawn; −1 before the first draw, and once its trial was learned from."""
    chance: Array
    """`(R,)` float64: how probable that draw was."""
    gains: Array
    """`(R,)` float64: the discounted sum of all rewards above zero."""
    gained: Array
    """`(R,)` float64: the discounted number of them."""
    rewards: Array
    """`(R, K)` float64: the sum of the rewards of each arm; nothing depends on it."""
    counts: Array
    """`(R, K)` float64: the number of trials of each arm; nothing depends on it."""
    generator: Array
    """`(R, 2)` int64; see `hotswap.generators`."""


@BANDITS.register("exp3s")
@dataclass(frozen=True)
class Exp3S(Bandit):
    """Draw an arm in proportion to weights that grow with what their arms have paid, and never die out.

    With K arms of weights w, γ = `exploration` and α = `share`, arm i is drawn with the probability

        p_i = (1 − γ) · w_i / Σw + γ / K,

    and when the trial of the drawn arm d has paid x in [0, 1], all weights change at once:

        w_i ← w_i · exp(γ/K · x/p_i · [i = d]) + e·α/K · Σw.

    Dividing by p_d makes up for arms that are seldom drawn. The last term gives every arm a share of all weight, so
    that an arm that becomes the best one comes up soon. Nothing is assumed about the rewards, not even that they are
    random; the price is slow learning, since what the arms teach is used in steps of γ/K.

    **It learns from one trial of a step, that of the arm which it drew.** The division is right only for arms that came
    up at random with a known probability. The arms that a search comes to afterwards did not: they depend on the losses
    before. Where the search never comes to the drawn arm, which happens when it begins above it (`headroom`), nothing
    is learned in that step.

    **Scale.** x must be in [0, 1], but rewards are usually about 0.01 and may be ±100. With s the running mean of all
    rewards above zero, this trial's included, of which each step keeps `memory`,

        x = reward / (2·s), brought into [0, 1].

    A usual gain is 1/2, twice of it or more is 1, and a trial that does not lower the loss is 0, however bad it was: a
    search does not take it. All trials of a step count for s, since it says nothing about which arm is better.

    The theory's γ = sqrt(K · (S·ln(K·T) + e) / ((e − 1)·T)) for T steps with S changes is 0.5 for K = 33, T = 10,000
    and S = 10, more exploring than a search that protects every step needs; γ = 0.2 explores in one step of five, and
    learns accordingly slowly. α = 1/T in theory; 0.001 expects a change about every thousand steps. `memory` = 0.99 is
    as long as that of `DiscountedUCB`.

    Weights are kept as logarithms and add up to 1, so they neither overflow nor vanish: γ/K · x/p ≤ 1. It is unsure
    until one arm has more than half of the weight.

    Auer, Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem", 2002, section 8.
    """

    exploration: float = 0.2
    share: float = 1e-3
    memory: float = 0.99

    def __post_init__(self) -> None:
        refuse_unless(0 < self.exploration <= 1, self, "exploration", "in (0, 1]")
        refuse_unless(0 <= self.share <= 1, self, "share", "in [0, 1]")
        refuse_unless(0 <= self.memory <= 1, self, "memory", "in [0, 1]")

    def start(self, runs: int, arms: int, device: Device = None) -> WeightState:
        """See `Bandit.start`."""
        number, table = zeros((runs,), "float64", device), zeros((runs, arms), "float64", device)
        return WeightState(
            weights=table - math.log(arms),
            drawn=zeros((runs,), "int64", device) + NONE,
            chance=number + 1.0,
            gains=number,
            gained=number,
            rewards=table,
            counts=table,
            generator=generators([0] * runs, device),
        )

    def bounds(self, arms: int) -> dict[str, tuple[float, float]]:
        """See `Bandit.bounds`."""
        sums = dict.fromkeys(("gains", "gained"), (0, math.inf))
        own = {
            "weights": (-math.inf, 1e-6),
            "drawn": (NONE, arms - 1),
            "chance": (self.exploration / arms / 2, 1 + 1e-6),
        }
        return super().bounds(arms) | sums | own

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`. The arm with the largest log p + Gumbel noise is one drawn with probability p."""
        chances = self.index(state)
        xp, arms = namespace(chances), chances.shape[1]
        numbers, generator = uniform(state.generator, arms)
        arm = (xp.log(chances) - xp.log(-xp.log(numbers))).argmax(axis=1)
        there = arm[:, None] == places(arms, arm)
        return arm, replaced(
            state,
            drawn=arm,
            chance=xp.where(there, chances, 0.0).sum(axis=1),
            gains=self.memory * state.gains,
            gained=self.memory * state.gained,
            generator=generator,
        )

    def index(self, state: State) -> Array:
        """See `Bandit.index`: p, the probability of each arm."""
        return (1 - self.exploration) * namespace(state.weights).exp(state.weights) + (
            self.exploration / state.weights.shape[1]
        )

    def observe(self, state: State, arm: Array, reward: Array, tried: Array | None = None) -> State:
        """See `Bandit.observe`. Of several trials of the drawn arm, the first one is learned from."""
        arm, reward, happened = trials_as_arrays(state.weights, arm, reward, tried)
        xp, trial = namespace(arm), places(arm.shape[1], arm)
        ours = happened & (arm == state.drawn[:, None])
        learning = ours.any(axis=1)
        first = xp.asarray(ours, dtype=xp.int64).argmax(axis=1)[:, None]
        gain = xp.where(reward > 0, reward, 0.0)
        won = xp.asarray(gain > 0, dtype=xp.float64)
        until = trial <= first  # trials that are known when the drawn arm's is
        scale = (state.gains + xp.where(until, gain, 0.0).sum(axis=1)) / xp.clip(
            state.gained + xp.where(until, won, 0.0).sum(axis=1), 1e-300, None
        )
        paid = xp.where(trial == first, gain, 0.0).sum(axis=1) / xp.where(scale > 0, 2 * scale, 1.0)
        grown = self._grown(state, xp.clip(paid, 0.0, 1.0))
        return replaced(
            super().observe(state, arm, reward, happened),
            weights=xp.where(learning[:, None], grown, state.weights),
            drawn=xp.where(learning, NONE, state.drawn),
            gains=state.gains + gain.sum(axis=1),
            gained=state.gained + won.sum(axis=1),
        )

    def unsure(self, state: State) -> Array:
        """See `Bandit.unsure`: whether no arm has more than half of the weight."""
        return namespace(state.weights).logical_not((state.weights > math.log(0.5)).any(axis=1))

    def _grown(self, state: State, paid: Array) -> Array:
        """The logarithms of the weights after the drawn arm has paid x `(R,)`; they add up to 1 again."""
        weights = state.weights
        xp, arms = namespace(weights), weights.shape[1]
        there = state.drawn[:, None] == places(arms, weights)
        grown = weights + xp.where(there, (self.exploration / arms * paid / state.chance)[:, None], 0.0)
        shared = 1 + math.log(self.share / arms) if self.share > 0 else -math.inf  # log(e·α/K · Σw), and Σw is 1
        mixed = xp.logaddexp(grown, xp.full_like(grown, shared))
        return mixed - xp.log(xp.exp(mixed).sum(axis=1))[:, None]
