"""What a base optimizer makes of a gradient: the direction along which a rate moves the parameters, θ′ = θ − α d.

Directions are those of torch's optimizers, so that hot swapping in an ensemble and `HotSwap` around the optimizer are
one algorithm. Their state advances once in every step, by the gradient at its start point, whatever is tried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

__all__ = ["AdamDirection", "Direction", "Momentum", "Plain"]


class Direction(ABC):
    """Turns the gradients of some runs into directions."""

    slots: ClassVar[tuple[str, ...]] = ()
    """What is remembered of each parameter from step to step, by name; zeros before the first step."""

    @abstractmethod
    def turn(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> None:
        """Advance the slots, and write the directions `(R, P)` over the gradients, in place.

        `step` counts the steps with this one, as a tensor without axes.
        """


@dataclass(frozen=True)
class Plain(Direction):
    """The gradient itself: the paper's base, stochastic gradient descent."""

    def turn(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> None:
        """See `Direction.turn`."""


@dataclass(frozen=True)
class Momentum(Direction):
    """`v ← μv + g`, and d = v, or g + μv for Nesterov's momentum: `torch.optim.SGD`."""

    momentum: float
    nesterov: bool = False
    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    def turn(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> None:
        """See `Direction.turn`."""
        velocity = slots["velocity"]
        velocity.mul_(self.momentum).add_(gradient)
        if self.nesterov:
            gradient.add_(velocity, alpha=self.momentum)
        else:
            gradient.copy_(velocity)


@dataclass(frozen=True)
class AdamDirection(Direction):
    """`m ← β₁m + (1−β₁)g`, `s ← β₂s + (1−β₂)g²`, and d = m̂ / (√ŝ + ε), both without their bias: `torch.optim.Adam`."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    def turn(self, gradient: Tensor, slots: dict[str, Tensor], step: Tensor) -> None:
        """See `Direction.turn`."""
        mean, square = slots["mean"], slots["square"]
        mean.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        width = (square / (1 - self.beta2**step)).sqrt_().add_(self.eps)
        gradient.copy_(mean / (1 - self.beta1**step) / width)
