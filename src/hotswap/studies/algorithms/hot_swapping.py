"""Hot-swapped stochastic gradient descent: the paper's instance, and any other bandit, search and reward."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from hotswap.arms import Arms, log_grid
from hotswap.bandits import BANDITS, Bandit, DiscountedUCB, FactoredBandit
from hotswap.errors import SettingError
from hotswap.pacing import Pace, When
from hotswap.rewards import REWARDS, LogReduction, Reward
from hotswap.searches import SEARCHES, Backtracking, FirstDecrease, Search
from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.settings import (
    COUNT,
    FACTOR,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    number,
    one,
    one_of,
    part_of,
    several,
    whole,
    yes_or_no,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Direction, Model, Update, Variant
    from hotswap.studies.study import RunSpec

__all__ = ["DucbFamily", "HotSwapFamily"]

WHEN = ("never", "unsure", "risen")
BASES = ("sgd", "nesterov", "adam")
RISE = number("a finite number above 1, or 0 for none", lambda x: x == 0 or 1 < x < float("inf"))
WEIGHT = number("a number in [0, 1]", lambda x: 0 <= x <= 1)


@dataclass(frozen=True, kw_only=True)
class HotSwappingFamily(Family):
    """The base of all hot swapping: a grid of rates, and the variant that an ensemble trains.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
    """

    high: float = one(POSITIVE, 1e2, help="the largest rate")
    low: float = one(POSITIVE, 1e-6, help="the smallest rate")
    count: int = one(COUNT, 33, help="how many rates, evenly spaced on a logarithmic scale")

    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "trials")

    def check(self) -> None:
        """See `Settings.check`."""
        if self.low > self.high or (self.low == self.high and self.count > 1):
            raise self.error("low", f"is {self.low!r}; it must be smaller than high, which is {self.high!r}.")
        if len(set(self.rates)) < self.count:
            raise self.error("count", f"is {self.count}; there are not so many different rates from high to low.")

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The rates, from large to small."""
        return log_grid(self.high, self.low, self.count)

    def arms(self) -> tuple[float, ...]:
        """See `Family.arms`."""
        return self.rates

    @abstractmethod
    def variant(self) -> Variant:
        """The family, as an ensemble takes it."""

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        return self.update_together(model, theta, [(self, runs)])

    @classmethod
    def update_together(
        cls, model: Model, theta: Tensor, families: Sequence[tuple[Family, Sequence[RunSpec]]]
    ) -> Update:
        """See `Family.update_together`."""
        from hotswap.ensemble import HotSwapped  # noqa: PLC0415  # needs torch, reading a study does not

        variants = [(family.variant(), len(runs)) for family, runs in families if isinstance(family, HotSwappingFamily)]
        return HotSwapped(model, theta, variants, seeds=[run.seed for _, runs in families for run in runs])


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

    def variant(self) -> Variant:
        """See `HotSwappingFamily.variant`."""
        from hotswap.ensemble import Variant  # noqa: PLC0415  # needs torch, reading a study does not

        search = {"backtracking": Backtracking, "first_decrease": FirstDecrease}[self.search]
        bandit = DiscountedUCB(self.discount, self.exploration)
        return Variant(Arms.of({"lr": self.rates}), bandit, search(headroom=self.headroom))


@ALGORITHMS.register("hotswap")
@dataclass(frozen=True, kw_only=True)
class HotSwapFamily(HotSwappingFamily):
    """Hot swapping with any bandit, search and reward: each by its name, or as a table of its name and settings.

    Families of it with equally many arms are trained together, on the same minibatches; those that swap several
    hyperparameters only with one another, and so those that are judged by the next minibatch.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
        bandit: Who proposes the rate that a step starts from; one of `hotswap.bandits.BANDITS`.
        search: How rates are tried from there; one of `hotswap.searches.SEARCHES`.
        reward: The worth of a trial to the bandit; one of `hotswap.rewards.REWARDS`.
        search_every: Search in every so many steps; 0 for only where `search_when` asks for it.
        search_when: Search also while the bandit is "unsure", or when the loss has "risen"; "never" for neither.
        guard: In older results, runs went back to a snapshot when the smoothed loss had risen by this factor. A
            family with a guard can be read and reported on; it is not trained any more.
        next_weight: The weight of the next minibatch in the loss that judges a trial; 0 for the same minibatch alone.
        base: The rule that turns a gradient into a direction: "sgd", "nesterov" or "adam".
        momentum: Momentum of the base "sgd" or "nesterov": one value, or several that are swapped, too.
        weight_decay: The share of the weights that the base "sgd" adds to the gradient: one value, or several.
        beta1: The share of the running mean of the gradient that the base "adam" keeps; 0 gives RMSprop's direction.
        beta2: The share of the running mean of its square that the base "adam" keeps.
        factored: True if each hyperparameter has a bandit of its own, instead of one for all combinations.
    """

    bandit: Bandit = one(part_of(BANDITS, Bandit), DiscountedUCB(), help="who proposes a rate")
    search: Search = one(
        part_of(SEARCHES, Search), Backtracking(), help="how rates are tried from there", example=FirstDecrease()
    )
    reward: Reward = one(part_of(REWARDS, Reward), LogReduction(), help="what a trial is worth to the bandit")
    search_every: int = one(whole(0), 1, help="search in every so many steps; 0: see search_when", added=True)
    search_when: str = one(one_of(WHEN), "never", help='search also when "unsure", or "risen"', added=True)
    guard: float = one(RISE, 0.0, help="of results from before; only 0 is trained", added=True)
    next_weight: float = one(WEIGHT, 0.0, help="what the next minibatch counts in judging", added=True)
    base: str = one(one_of(BASES), "sgd", help='whose direction: "sgd", "nesterov" or "adam"', added=True)
    momentum: tuple[float, ...] = several(SHARE, (0.0,), help="of sgd or nesterov; several are swapped", added=True)
    weight_decay: tuple[float, ...] = several(NOT_NEGATIVE, (0.0,), help="of sgd; several are swapped", added=True)
    beta1: float = one(SHARE, 0.9, help="of adam: how much of the mean gradient is kept", added=True)
    beta2: float = one(SHARE, 0.999, help="of adam: how much of the mean square is kept", added=True)
    factored: bool = one(yes_or_no(), False, help="whether each hyperparameter has its own bandit", added=True)

    label: ClassVar[str] = "hot swapping"
    look: ClassVar[Look] = Look("#009E73", "#4cc9a0", marker="diamond", layer=2)
    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "trials", "passes")

    def check(self) -> None:
        """See `Settings.check`."""
        super().check()
        if self.search_every == 0 and self.search_when == "never":
            raise self.error("search_every", 'is 0, but search_when is "never"; one of them must ask for a search.')
        if self.base == "adam" and self.momentum != (0.0,):
            raise self.error("momentum", 'is of the base "sgd" or "nesterov"; leave it out for "adam".')
        if self.base == "nesterov" and (len(self.momentum) > 1 or not self.momentum[0]):
            raise self.error("momentum", 'must be one value above 0 for the base "nesterov".')
        if self.base != "sgd" and self.weight_decay != (0.0,):
            raise self.error("weight_decay", f'is of the base "sgd"; leave it out for {self.base!r}.')
        if self.factored and len(self.hyperparameters.names) == 1:
            raise self.error("factored", "is true, but the rate alone is swapped; give several momenta or decays.")
        if self.combined and self.search.needs_slope:
            raise self.error("search", "asks for a slope, which arms over several hyperparameters do not have.")

    @cached_property
    def hyperparameters(self) -> Arms:
        """The arms: every combination of the rates and of what else has several values."""
        more = {"weight_decay": self.weight_decay, "momentum": self.momentum} if self.combined else {}
        return Arms.of({**{name: values for name, values in more.items() if values != (0.0,)}, "lr": self.rates})

    @property
    def combined(self) -> bool:
        """True if more than the rate is swapped, or a weight decay is in force."""
        return len(self.momentum) > 1 or self.weight_decay != (0.0,)

    def check_trained(self) -> None:
        """See `Family.check_trained`."""
        if self.guard:
            raise SettingError(
                f"The family {self.name!r} has a guard, and hotswap no longer trains families with one; take `guard` "
                "out of the study, and let a search protect its steps. Results that have such a family stay readable."
            )

    def arms(self) -> tuple[float, ...]:
        """See `Family.arms`: the rate of each arm."""
        return self.rates * math.prod(self.hyperparameters.shape[:-1])

    def together(self) -> tuple[object, ...]:
        """See `Family.together`."""
        arms = self.hyperparameters
        return self.algorithm, len(arms), arms.row, self.combined, self.next_weight > 0

    def variant(self) -> Variant:
        """See `HotSwappingFamily.variant`."""
        from hotswap.ensemble import AdamDirection, Momentum, Plain, Variant  # noqa: PLC0415  # need torch

        arms = self.hyperparameters
        bandit: Bandit = self.bandit
        if self.factored:
            bandit = FactoredBandit(self.bandit, arms.shape)
        if self.base == "adam":
            direction: Direction = AdamDirection(self.beta1, self.beta2)
        elif self.momentum != (0.0,) and not self.combined:
            direction = Momentum(self.momentum[0], nesterov=self.base == "nesterov")
        else:
            direction = Plain()
        when: When | None = None if self.search_when == "never" else self.search_when  # type: ignore[assignment]
        return Variant(
            arms,
            bandit,
            self.search,
            self.reward,
            pace=Pace(every=self.search_every or None, when=when),
            direction=direction,
            next_weight=self.next_weight,
        )
