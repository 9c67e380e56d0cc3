"""A bandit with random numbers of its own: usually the arm with the best mean reward, now and then any other."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, namespace, zeros
from hotswap.bandits import BANDITS, Bandit
from hotswap.generators import generators, uniform
from hotswap.states import replaced


class Memory(NamedTuple):
    rewards: Array  # (R, K): sums for R runs of K arms, to which `Bandit.observe` adds
    counts: Array  # (R, K)
    generator: Array  # (R, 2): whoever trains seeds it, saves it and resumes it with the rest


@BANDITS.register("mostly_greedy")
@dataclass(frozen=True)
class MostlyGreedy(Bandit):
    curiosity: float = 0.1

    def start(self, runs: int, arms: int, device: object = None) -> Memory:
        none = (zeros((runs, arms), "float64", device) for _ in range(2))
        return Memory(*none, generator=generators([0] * runs, device))

    def propose(self, state: Memory) -> tuple[Array, Memory]:
        xp, arms = namespace(state.counts), state.counts.shape[1]
        chance, generator = uniform(state.generator, 1 + arms)
        explores = chance[:, 0] < self.curiosity
        arm = xp.where(explores, chance[:, 1:].argmax(axis=1), self.index(state).argmax(axis=1))
        return arm, replaced(state, generator=generator)

    def index(self, state: Memory) -> Array:
        xp, tried = namespace(state.counts), state.counts > 0
        return xp.where(tried, state.rewards / xp.where(tried, state.counts, 1.0), math.inf)
