"""Discounted UCB, the paper's bandit (Algorithm 3, InitialAlphaIndex and GetDucbSuggestedIndex)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotswap.arrays import Array, namespace
from hotswap.bandits.base import BANDITS, Bandit, check_exploration, refuse_unless, upper_confidence
from hotswap.states import State, replaced

__all__ = ["DiscountedUCB"]


@BANDITS.register("discounted_ucb")
@dataclass(frozen=True)
class DiscountedUCB(Bandit):
    """Propose the arm with the largest mean reward plus confidence width, both forgetting the past.

    With γ = `discount`, c = `exploration`, and per arm the discounted sums of its rewards and of its trials,

        ucb = rewards / counts + sqrt(c · log(n) / counts),    n = Σ counts.

    The first K−1 steps are a **sweep**: step t starts from arm t and nothing is discounted. Afterwards every proposal
    first multiplies rewards and counts by γ. An arm that is untried, or was tried so long ago that its count has faded
    to nothing (1e-290), has ucb = +∞; log(n) is clamped at 0 from below (strong discounting makes n < 1); ties go to
    the lower index, the larger rate. γ = 1 is plain UCB1's index; c = 0 exploits, until an arm is forgotten.

    Forgetting is what training needs: the best rate of the first epoch is not that of the last. Garivier and
    Moulines, "On upper-confidence bound policies for non-stationary bandit problems", 2008. The paper gives neither γ
    nor c; these defaults are those of its first author's later public port.
    """

    discount: float = 0.99
    exploration: float = 1e-8

    def __post_init__(self) -> None:
        refuse_unless(0 < self.discount <= 1, self, "discount", "in (0, 1]")
        check_exploration(self, self.exploration)

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        xp = namespace(state.counts)
        if xp is np and len(state.step) == 1:
            return self._propose_for_one(state)
        sweeping = state.step < state.counts.shape[1] - 1
        faded = replaced(
            state,
            rewards=xp.where(sweeping[:, None], state.rewards, self.discount * state.rewards),
            counts=xp.where(sweeping[:, None], state.counts, self.discount * state.counts),
            step=state.step + 1,
        )
        best = self.index(faded).argmax(axis=1)  # the first of equals: ties go to the larger rate
        return xp.where(sweeping, state.step, best), faded

    def _propose_for_one(self, state: State) -> tuple[Array, State]:
        """The same for one run in NumPy, which sweeps or does not: half of what is done for many falls away."""
        step = state.step.copy()
        step[0] = after = state.step.item() + 1
        if after < state.counts.shape[1]:
            return state.step, replaced(state, step=step)
        faded = replaced(state, rewards=self.discount * state.rewards, counts=self.discount * state.counts, step=step)
        return self.index(faded).argmax(axis=1), faded

    def index(self, state: State) -> Array:
        """See `Bandit.index`."""
        return upper_confidence(state.rewards, state.counts, state.counts.sum(axis=1), self.exploration)
