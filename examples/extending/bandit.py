"""A bandit with random numbers of its own: mostly greedy, now and then curious."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, namespace, zeros
from hotswap.bandits import BANDITS, Bandit
from hotswap.generators import generators, uniform
from hotswap.states import replaced


class Memory(NamedTuple):
    rewards: Array  # (R, K): sums for R runs of K arms; `Bandit.observe` adds to them
    counts: Array  # (R, K)
    generator: Array  # (R, 2): seeded, saved and resumed by whoever trains


@BANDITS.register("mostly_greedy")
@dataclass(frozen=True)
class MostlyGreedy(Bandit):
    curiosity: float = 0.1

    def start(self, runs: int, arms: int, device: object = None) -> Memory:
        none = (zeros((runs, arms), "float64", device) for _ in range(2))
        return Memory(*none, generator=generators([0] * runs, device))

    def propose(self, state: Memory) -> tuple[Array, Memory]:
        arms = state.counts.shape[1]
        chance, generator = uniform(state.generator, 1 + arms)
        curious, random = chance[:, 0] < self.curiosity, chance[:, 1:].argmax(axis=1)
        best = self.index(state).argmax(axis=1)
        arm = namespace(chance).where(curious, random, best)
        return arm, replaced(state, generator=generator)

    def index(self, state: Memory) -> Array:
        xp, tried = namespace(state.counts), state.counts > 0
        means = state.rewards / xp.where(tried, state.counts, 1.0)
        return xp.where(tried, means, math.inf)
