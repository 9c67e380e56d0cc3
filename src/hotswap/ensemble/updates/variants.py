"""What distinguishes hot-swapped runs that are trained together: who chooses, among what, how often, and for what base.

    Variant(Arms.of({"lr": log_grid()}), DiscountedUCB(), Backtracking())          # the paper's

Runs of several variants share every minibatch. Whatever is equal in variants that stand side by side, a bandit or a
search, works for all of their runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from hotswap.arms import Arms
from hotswap.bandits import Bandit
from hotswap.ensemble.updates.directions import Direction, Plain
from hotswap.errors import SettingError
from hotswap.guards import Guard
from hotswap.pacing import Pace
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Search

__all__ = ["ArmTables", "Shared", "Variant", "shared"]

SWAPPABLE = ("lr", "momentum", "weight_decay")

T = TypeVar("T")


@dataclass(frozen=True)
class Variant:
    """One way of hot swapping.

    Attributes:
        arms: The learning rates to choose from; with momenta, weight decays or both, every combination of them.
        bandit: Proposes an arm.
        search: Tries arms on the minibatch.
        reward: What a trial is worth to the bandit.
        pace: When a step searches.
        guard: What goes back to a snapshot when the loss has risen; None for nothing.
        direction: What the base optimizer makes of the gradient; arms over momentum bring their own.
        next_weight: What the next minibatch counts in the loss that judges a trial; 0 for the same minibatch alone, as
            in the paper, 1 for the next one alone.
    """

    arms: Arms
    bandit: Bandit
    search: Search
    reward: Reward = LogReduction()  # noqa: RUF009  # frozen
    pace: Pace = Pace()  # noqa: RUF009  # frozen
    guard: Guard | None = None
    direction: Direction = Plain()  # noqa: RUF009  # frozen
    next_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in self.arms.names:
            if name not in SWAPPABLE:
                raise SettingError(
                    f"Variant(arms=...): an ensemble cannot swap {name!r}; it can swap {', '.join(SWAPPABLE)}."
                )
        if "lr" not in self.arms.names:
            raise SettingError("Variant(arms=...): there is no 'lr' to walk along; give at least one rate.")
        if self.several and (self.direction != Plain() or self.guard is not None or self.search.needs_slope):
            raise SettingError(
                "Variant: arms over several hyperparameters go with plain gradients, without a guard, and with a "
                "search that asks for no slope."
            )
        if not 0 <= self.next_weight <= 1:
            raise SettingError(f"Variant(next_weight={self.next_weight!r}): next_weight must be in [0, 1].")

    @property
    def several(self) -> bool:
        """Whether more than the rate is swapped."""
        return len(self.arms.names) > 1

    @property
    def untried(self) -> bool:
        """Whether a step may take an arm without a trial of it."""
        return not self.pace.always or not self.search.tries

    def kind(self) -> tuple[int, int, bool, bool]:
        """Variants of one kind can be trained together."""
        return len(self.arms), self.arms.row, self.several, self.next_weight > 0


class ArmTables(NamedTuple):
    """What each arm does in each run: θ′ = (1 − shrink) θ − rate · g − drag · v."""

    rate: Tensor
    """`(R, K)` the learning rate."""
    momentum: Tensor
    """`(R, K)`."""
    decay: Tensor
    """`(R, K)` the weight decay, which is added to the gradient."""

    @classmethod
    def of(cls, variants: Sequence[tuple[Variant, int]], device: torch.device) -> ArmTables:
        """The tables of variants with so many runs each."""
        rows: dict[str, list[list[float]]] = {name: [] for name in SWAPPABLE}
        for variant, runs in variants:
            arms = [variant.arms.values(arm) for arm in range(len(variant.arms))]
            for name in SWAPPABLE:
                row = [float(values.get(name, 0.0)) for values in arms]  # type: ignore[arg-type]  # not a tuple
                rows[name] += [row] * runs
        rate, momentum, decay = (torch.tensor(rows[name], dtype=torch.float64, device=device) for name in SWAPPABLE)
        return cls(rate, momentum, decay)


class Shared(NamedTuple, Generic[T]):
    """A part that variants side by side have in common, and the rows of their runs."""

    part: T
    start: int
    stop: int


def shared(variants: Sequence[tuple[Variant, int]], part_of: Callable[[Variant], T]) -> list[Shared[T]]:
    """The parts of variants with so many runs each, equal neighbours as one."""
    found: list[Shared[T]] = []
    at = 0
    for variant, runs in variants:
        part = part_of(variant)
        if found and found[-1].part == part and type(found[-1].part) is type(part):
            found[-1] = found[-1]._replace(stop=at + runs)
        else:
            found.append(Shared(part, at, at + runs))
        at += runs
    return found
