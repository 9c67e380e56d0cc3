"""vSGD: Schaul, Zhang and LeCun, "No more pesky learning rates", 2013, with finite differences of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.settings import COUNT, number, one

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.study import RunSpec

__all__ = ["VsgdFamily"]

AT_LEAST_1 = number("a finite number, 1 or more", lambda x: 1 <= x < float("inf"))


@ALGORITHMS.register("vsgd")
@dataclass(frozen=True, kw_only=True)
class VsgdFamily(Family):
    """vSGD-fd (Schaul and LeCun, 2013): a rate for each parameter, from running averages of gradients and curvatures.

    A step computes two gradients; the column `passes` counts six forward passes for it, a backward counting as two.

    Attributes:
        start: How many minibatches give the first averages, before anything moves.
        slow: The factor by which the mean square of the gradient is multiplied then, so that rates begin too small.
    """

    start: int = one(COUNT, 10, help="how many minibatches give the first averages, before anything moves")
    slow: float = one(AT_LEAST_1, 2.0, help="what the mean square of the gradient is multiplied with then")

    label: ClassVar[str] = "vSGD"
    look: ClassVar[Look] = Look("#5E3C99", "#a88bd8", marker="diamond", filled=False, dashes="dotted")
    measures: ClassVar[tuple[str, ...]] = ("passes",)

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        from hotswap.ensemble import Vsgd  # noqa: PLC0415  # needs torch, which reading a study does not

        return Vsgd(model, theta, start=self.start, slow=self.slow)
