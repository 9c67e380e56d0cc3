"""AdaDelta: Zeiler, "ADADELTA: an adaptive learning rate method", 2012."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hotswap.arrays import Array
from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.settings import POSITIVE, number, one

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.study import RunSpec

__all__ = ["AdaDeltaFamily"]

INSIDE = number("a number in (0, 1)", lambda x: 0 < x < 1)


@ALGORITHMS.register("adadelta")
@dataclass(frozen=True, kw_only=True)
class AdaDeltaFamily(Family):
    """AdaDelta (Zeiler, 2012) with one setting.

    Attributes:
        rho: How much of the running averages is kept at each step.
        eps: The number that is added under the square roots.
        lr: The factor by which its step is multiplied; 1 in the original.
    """

    rho: float = one(INSIDE, 0.95, help="how much of its running averages is kept at each step")
    eps: float = one(POSITIVE, 1e-6, help="what is added under the square roots")
    lr: float = one(POSITIVE, 1.0, help="what its step is multiplied with; 1 in the original")

    label: ClassVar[str] = "AdaDelta"
    look: ClassVar[Look] = Look("#D55E00", "#f0883e", marker="triangle", filled=False, dashes="dashed")

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        from hotswap.ensemble import Elementwise  # noqa: PLC0415  # needs torch, which reading a study does not

        values = {"rho": self.rho, "eps": self.eps, "lr": self.lr}
        return Elementwise(model, theta, rule, slots=("squares", "moves"), values=values, counts_steps=False)


def rule(theta: Array, gradient: Array, slots: dict[str, Array], values: dict[str, Array], step: Array) -> None:
    """One step of all runs, in place: `squares` and `moves` are running averages of g² and Δθ²."""
    squares, moves, rho, eps = slots["squares"], slots["moves"], values["rho"], values["eps"]
    squares.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
    move = (moves + eps).sqrt_().div_((squares + eps).sqrt_()).mul_(gradient)
    moves.mul_(rho).addcmul_(move, move, value=1 - rho)
    theta.add_(move, alpha=-values["lr"])
