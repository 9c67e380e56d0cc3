"""Adam with decoupled weight decay: Kingma and Ba, 2015; Loshchilov and Hutter, 2019 (AdamW)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hotswap.arrays import Array
from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.settings import FACTOR, NOT_NEGATIVE, POSITIVE, SHARE, one, several

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.study import RunSpec

__all__ = ["AdamFamily"]


@ALGORITHMS.register("adam")
@dataclass(frozen=True, kw_only=True)
class AdamFamily(Family):
    """Adam at every combination of three lists; with a weight decay it is AdamW.

    Attributes:
        lr: Rates of the first epoch.
        lr_decay: The factor by which the rate is multiplied after each epoch.
        weight_decay: The share by which the weights shrink at each step, times the rate.
        beta1: How much of the running average of the gradient is kept at each step.
        beta2: How much of the running average of its square is kept.
        eps: The number that is added to the square root of that average.
    """

    lr: tuple[float, ...] = several(POSITIVE, help="rates of the first epoch", short="lr", example=(0.01, 0.001))
    lr_decay: tuple[float, ...] = several(
        FACTOR, (1.0,), help="the rate is multiplied with this after each epoch", short="decay"
    )
    weight_decay: tuple[float, ...] = several(
        NOT_NEGATIVE, (0.0,), help="what weights shrink by at each step, times the rate", short="wd"
    )
    beta1: float = one(SHARE, 0.9, help="how much of the running average of the gradient is kept")
    beta2: float = one(SHARE, 0.999, help="how much of the running average of its square is kept")
    eps: float = one(POSITIVE, 1e-8, help="what is added to the square root of that")

    label: ClassVar[str] = "Adam"
    look: ClassVar[Look] = Look("#CC79A7", "#e39bc4", marker="square", size=4.5, dashes="dashed")
    measures: ClassVar[tuple[str, ...]] = ("mean_lr",)

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        from hotswap.ensemble import Elementwise  # noqa: PLC0415  # needs torch, which reading a study does not

        rates, decays, shrinking = ([run.settings[name] for run in runs] for name in self.varied())
        values: dict[str, float | list[float]] = {"lr": rates, "weight_decay": shrinking}
        values |= {"beta1": self.beta1, "beta2": self.beta2, "eps": self.eps}
        return Elementwise(model, theta, rule, slots=("mean", "square"), values=values, decay=decays)

    @classmethod
    def describe(cls, settings: Mapping[str, float]) -> str:
        """See `Family.describe`: "rate 0.001 × 0.99 per epoch, weight decay 0.1"."""
        decay = "" if settings["lr_decay"] == 1 else f" × {settings['lr_decay']:g} per epoch"
        shrinking = f", weight decay {settings['weight_decay']:g}" if settings["weight_decay"] else ""
        return f"rate {settings['lr']:g}{decay}{shrinking}"


def rule(theta: Array, gradient: Array, slots: dict[str, Array], values: dict[str, Array], step: Array) -> None:
    """One step of all runs, in place: `mean` and `square` are running averages of g and g²."""
    mean, square, beta1, beta2 = slots["mean"], slots["square"], values["beta1"], values["beta2"]
    mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    theta.mul_(1 - values["lr"] * values["weight_decay"])
    width = (square / (1 - beta2**step)).sqrt_().add_(values["eps"])
    theta.sub_(values["lr"] / (1 - beta1**step) * mean / width)
