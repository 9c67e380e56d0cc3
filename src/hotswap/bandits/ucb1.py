"""UCB1, the bandit for problems that do not change (Auer, Cesa-Bianchi, Fischer 2002)."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.arrays import Array
from hotswap.bandits.base import BANDITS, Bandit, check_exploration, upper_confidence
from hotswap.states import State, replaced

__all__ = ["UCB1"]


@BANDITS.register("ucb1")
@dataclass(frozen=True)
class UCB1(Bandit):
    """Propose the arm with the largest mean reward plus confidence width, of all trials since the first.

    With c = `exploration`, and per arm the sum of its rewards and the number of its trials,

        ucb = rewards / counts + sqrt(c · ln(n) / counts),    n = Σ counts.

    An arm that was never tried has ucb = +∞, so untried arms come first, the lowest index before the others; a walk of
    the search may try several of them in one step. Ties go to the lower index, the larger rate.

    Nothing is forgotten. So this is the yardstick for problems that stay as they are, and for how much the forgetting
    of `DiscountedUCB` is worth: the best rate of the first epoch is seldom that of the last.

    The reference has c = 2 for rewards between 0 and 1. Rewards that differ by s in place of 1 need c = 2·s², and here
    the mean log reductions of rates that are worth telling apart differ by about s = 1e-3, hence the default of 2e-6.
    It is larger than the 1e-8 of `DiscountedUCB`, since without forgetting nothing else brings an arm back. c = 0 never
    tries an arm again whose first rewards were unlucky.

    Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002, Figure 1.
    """

    exploration: float = 2e-6

    def __post_init__(self) -> None:
        check_exploration(self, self.exploration)

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        return self.index(state).argmax(axis=1), replaced(state, step=state.step + 1)

    def index(self, state: State) -> Array:
        """See `Bandit.index`."""
        return upper_confidence(state.rewards, state.counts, state.counts.sum(axis=1), self.exploration)
