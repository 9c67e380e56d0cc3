"""Hot-swapped stochastic gradient descent: the paper's instance, and any other bandit, search and reward."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hotswap.arms import log_grid
from hotswap.bandits import BANDITS, Bandit, DiscountedUCB
from hotswap.rewards import REWARDS, LogReduction, Reward
from hotswap.searches import SEARCHES, Backtracking, FirstDecrease, Search
from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.specification.parts import part_of
from hotswap.studies.specification.settings import COUNT, FACTOR, NOT_NEGATIVE, POSITIVE, Check, one, one_of, whole

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.specification.study import RunSpec

__all__ = ["DucbFamily", "HotSwapFamily"]


@dataclass(frozen=True, kw_only=True)
class HotSwappingFamily(Family):
    """What all hot swapping shares: a grid of rates, and who chooses among them.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
    """

    high: float = one(POSITIVE, 1e2, help="the largest rate")
    low: float = one(POSITIVE, 1e-6, help="the smallest rate")
    count: int = one(COUNT, 33, help="how many rates, evenly spaced on a logarithmic scale")

    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "trials")

    def check(self, check: Check) -> None:
        """See `Settings.check`."""
        if self.low > self.high or (self.low == self.high and self.count > 1):
            raise check.error("low", f"is {self.low!r}; it must be smaller than high, which is {self.high!r}.")
        if len(set(self.rates)) < self.count:
            raise check.error("count", f"is {self.count}; there are not so many different rates from high to low.")

    @property
    def rates(self) -> tuple[float, ...]:
        """The arms, from large to small."""
        return log_grid(self.high, self.low, self.count)

    def arms(self) -> tuple[float, ...]:
        """See `Family.arms`."""
        return self.rates

    @abstractmethod
    def swapping(self) -> tuple[Bandit, Search, Reward]:
        """Who proposes a rate, who protects the step, and what a trial is worth."""

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        from hotswap.ensemble import HotSwapped  # noqa: PLC0415  # needs torch, reading a study does not

        bandit, search, reward = self.swapping()
        return HotSwapped(model, theta, self.rates, bandit, search, reward, seeds=[run.seed for run in runs])


@ALGORITHMS.register("ducb")
@dataclass(frozen=True, kw_only=True)
class DucbFamily(HotSwappingFamily):
    """The paper's hot swapping: a discounted UCB bandit proposes a rate, a line search protects the step.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
        discount: γ, how much of what the bandit knows is kept at each step.
        exploration: c, the weight of the bandit's confidence widths.
        search: How it walks from the proposed rate to smaller ones.
        headroom: How many rates above the proposed one a walk begins.
    """

    discount: float = one(FACTOR, 0.99, help="how much of what the bandit knows is kept at each step")
    exploration: float = one(NOT_NEGATIVE, 1e-8, help="the weight of its confidence widths")
    search: str = one(
        one_of(("backtracking", "first_decrease")), "backtracking", help='"backtracking" or "first_decrease"'
    )
    headroom: int = one(whole(0), 0, help="how many rates above the proposed one the search begins")

    label: ClassVar[str] = "DUCB"
    look: ClassVar[Look] = Look("#0072B2", "#56b4e9", layer=2)

    def swapping(self) -> tuple[Bandit, Search, Reward]:
        """See `HotSwappingFamily.swapping`."""
        search = {"backtracking": Backtracking, "first_decrease": FirstDecrease}[self.search]
        return DiscountedUCB(self.discount, self.exploration), search(headroom=self.headroom), LogReduction()


@ALGORITHMS.register("hotswap")
@dataclass(frozen=True, kw_only=True)
class HotSwapFamily(HotSwappingFamily):
    """Hot swapping with any bandit, search and reward: each by its name, or as a table of its name and settings.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
        bandit: Who proposes the rate that a step starts from; one of `hotswap.bandits.BANDITS`.
        search: How rates are tried from there; one of `hotswap.searches.SEARCHES`.
        reward: What a trial is worth to the bandit; one of `hotswap.rewards.REWARDS`.
    """

    bandit: Bandit = one(part_of(BANDITS, Bandit), DiscountedUCB(), help="who proposes a rate")
    search: Search = one(
        part_of(SEARCHES, Search), Backtracking(), help="how rates are tried from there", example=FirstDecrease()
    )
    reward: Reward = one(part_of(REWARDS, Reward), LogReduction(), help="what a trial is worth to the bandit")

    label: ClassVar[str] = "hot swapping"
    look: ClassVar[Look] = Look("#009E73", "#4cc9a0", marker="diamond", layer=2)

    def swapping(self) -> tuple[Bandit, Search, Reward]:
        """See `HotSwappingFamily.swapping`."""
        return self.bandit, self.search, self.reward
