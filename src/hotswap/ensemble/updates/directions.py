"""What a base optimizer makes of a gradient: the direction along which a rate moves the parameters, θ′ = θ − α d.

Directions are those of torch's optimizers, so that hot swapping in an ensemble and `HotSwap` around the optimizer are
one algorithm. Their state advances once in every step, by the gradient at its start point, whatever is tried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hotswap.ensemble.kernels import fused

__all__ = ["AdamDirection", "Direction", "Directions", "Momentum", "Plain"]


class Direction(ABC):
    """Turns the gradients of some runs into directions."""

    slots: ClassVar[tuple[str, ...]] = ()
    """What is remembered of each parameter from step to step, by name; zeros before the first step."""

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


class Directions:
    """The base optimizers of all runs, and what they remember.

    of: the base of some runs, then the first and, exclusively, the last of their rows.
    slopes: whether slopes are asked for even where the base is plain.
    """

    def __init__(self, of: Sequence[tuple[Direction, int, int]], theta: Tensor, *, slopes: bool) -> None:
        self.rows = [
            (base, slice(start, stop), {name: torch.zeros_like(theta[start:stop]) for name in base.slots})
            for base, start, stop in of
        ]
        self.has_state = any(slots for *_, slots in self.rows)
        self.active = slopes or self.has_state
        self.step = torch.zeros((), dtype=torch.float64, device=theta.device)
        self.slope, self.norm = torch.zeros(2, len(theta), dtype=torch.float64, device=theta.device).unbind()
        """`(R,)` ⟨g, d⟩, by how much the loss falls for a small step along d; and the norm of g."""

    def turn(self, gradient: Tensor) -> None:
        """Write directions over the gradients `(R, P)`, in place; note slopes and norms if anybody asks for them."""
        if not self.active:
            return
        self.step += 1
        for base, rows, slots in self.rows:
            if slots:
                fused(_turn, gradient)(base, gradient[rows], slots, self.step, self.slope[rows], self.norm[rows])
            else:
                self.norm[rows] = torch.linalg.vector_norm(gradient[rows], dim=1)
                self.slope[rows] = self.norm[rows].square()

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on."""
        found = {"step": self.step} if self.has_state else {}
        for place, (_, _, slots) in enumerate(self.rows):
            found |= {f"base/{place}/{name}": slot for name, slot in slots.items()}
        return found


def _turn(
    base: Direction, gradient: Tensor, slots: dict[str, Tensor], step: Tensor, slope: Tensor, norm: Tensor
) -> None:
    direction = base.turned(gradient, slots, step)
    slope.copy_((gradient * direction).sum(1))
    norm.copy_(torch.linalg.vector_norm(gradient, dim=1))
    gradient.copy_(direction)
