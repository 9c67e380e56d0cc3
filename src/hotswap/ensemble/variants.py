"""Variants of hot swapping that are trained together: arms, bandit, search, reward, pace and base optimizer of each.

    Variant(Arms.of({"lr": log_grid()}), DiscountedUCB(), Backtracking())          # the paper's

A base optimizer turns a gradient into a `Direction` d. A rate α moves the parameters along it, θ′ = θ − α d.
Directions are those of torch's optimizers, so that hot swapping in an ensemble and `HotSwap` around the optimizer are
one algorithm. Their state advances once in every step, by the gradient at its start point, whatever is tried.

Runs of several variants share every minibatch. A part that is equal in variants that stand side by side, a bandit or a
search, is one `Group`: it works for the runs of all these variants at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hotswap.arms import Arms
from hotswap.bandits import Bandit
from hotswap.errors import SettingError
from hotswap.pacing import Pace
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Search

__all__ = ["AdamDirection", "ArmTables", "Direction", "Group", "Momentum", "Plain", "Runs", "Variant", "grouped"]

SWAPPABLE = ("lr", "momentum", "weight_decay")


class Direction(ABC):
    """Turns the gradients of some runs into directions."""

    slots: ClassVar[tuple[str, ...]] = ()
    """Names of the values that are kept of each parameter from step to step; zeros before the first step."""

    @abstractmethod
    def turned(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> Tensor:
        """The directions `(R, P)` of gradients `(R, P)`, which stay as they are; the slots advance, in place.

        `step` counts the steps with this one, as a tensor without axes.
        """


@dataclass(frozen=True)
class Plain(Direction):
    """The gradient itself: the paper's base, stochastic gradient descent."""

    def turned(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> Tensor:
        """See `Direction.turned`."""
        return gradient


@dataclass(frozen=True)
class Momentum(Direction):
    """`v ← μv + g`, and d = v, or g + μv for Nesterov's momentum: `torch.optim.SGD`."""

    momentum: float
    nesterov: bool = False
    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    def turned(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> Tensor:
        """See `Direction.turned`."""
        velocity = slots["velocity"]
        velocity.mul_(self.momentum).add_(gradient)
        return gradient + self.momentum * velocity if self.nesterov else velocity


@dataclass(frozen=True)
class AdamDirection(Direction):
    """`m ← β₁m + (1−β₁)g`, `s ← β₂s + (1−β₂)g²`, and d = m̂ / (√ŝ + ε), both without their bias: `torch.optim.Adam`."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    def turned(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> Tensor:
        """See `Direction.turned`."""
        mean, square = slots["mean"], slots["square"]
        mean.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        width = (square / (1 - self.beta2**step)).sqrt_().add_(self.eps)
        return mean / (1 - self.beta1**step) / width


@dataclass(frozen=True)
class Variant:
    """One way of hot swapping.

    Attributes:
        arms: The learning rates to choose from; with momenta, weight decays or both, every combination of them.
        bandit: Proposes an arm.
        search: Tries arms on the minibatch.
        reward: Turns the losses before and after a trial into a reward for the bandit.
        pace: Decides which steps search.
        direction: Turns the gradient into a direction, as a base optimizer does; arms over momentum bring their own.
        next_weight: The weight of the next minibatch in the loss that judges a trial; 0 for the step's own minibatch
            alone, as in the paper, 1 for the next minibatch alone.
    """

    arms: Arms
    bandit: Bandit
    search: Search
    reward: Reward = LogReduction()  # noqa: RUF009  # frozen
    pace: Pace = Pace()  # noqa: RUF009  # frozen
    direction: Direction = Plain()
    next_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in self.arms.names:
            if name not in SWAPPABLE:
                raise SettingError(
                    f"Variant(arms=...): an ensemble cannot swap {name!r}; it can swap {', '.join(SWAPPABLE)}."
                )
        if "lr" not in self.arms.names:
            raise SettingError("Variant(arms=...): there is no 'lr' to walk along; give at least one rate.")
        if self.several and (self.direction != Plain() or self.search.needs_slope):
            raise SettingError(
                "Variant: arms over several hyperparameters go with plain gradients, and with a search that asks for "
                "no slope."
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


Runs = Sequence[tuple[Variant, int]]
"""Variants and how many runs each of them has, in the order of the rows of θ."""


class Group(NamedTuple):
    """A part that neighbouring rows share, and its state for them: a named tuple or a dictionary of tensors."""

    part: Any
    rows: slice
    state: Any


def grouped(runs: Runs, part_of: Callable[[Variant], Any], begin: Callable[[Any, slice], Any]) -> list[Group]:
    """The parts of the variants, equal neighbours as one, each with the state that `begin(part, rows)` makes.

    A variant whose part is None is left out.
    """
    parts: list[tuple[Any, slice]] = []
    at = 0
    for variant, count in runs:
        part, start = part_of(variant), at
        at += count
        if parts and parts[-1][0] == part and type(parts[-1][0]) is type(part):
            start = parts.pop()[1].start
        parts.append((part, slice(start, at)))
    return [Group(part, rows, begin(part, rows)) for part, rows in parts if part is not None]


class ArmTables(NamedTuple):
    """The settings of each arm in each run: `(R, K)` each. A weight decay is added to the gradient."""

    rate: Tensor
    momentum: Tensor
    decay: Tensor

    @classmethod
    def of(cls, runs: Runs, device: torch.device) -> ArmTables:
        """The tables of variants with so many runs each."""
        rows: dict[str, list[Any]] = {name: [] for name in SWAPPABLE}
        for variant, count in runs:
            arms, none = variant.arms, (0.0,) * len(variant.arms)
            each = zip(*product(*arms.axes), strict=True)  # the values of a hyperparameter, arm by arm
            values = dict(zip(arms.names, each, strict=True))
            for name in SWAPPABLE:
                rows[name] += [values.get(name, none)] * count
        return cls(*(torch.tensor(rows[name], dtype=torch.float64, device=device) for name in SWAPPABLE))
