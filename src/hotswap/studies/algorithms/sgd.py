"""Stochastic gradient descent with momentum and a rate that falls from epoch to epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.settings import FACTOR, POSITIVE, SHARE, several

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.study import RunSpec

__all__ = ["SgdFamily"]


@ALGORITHMS.register("sgd")
@dataclass(frozen=True, kw_only=True)
class SgdFamily(Family):
    """Stochastic gradient descent at every combination of three lists.

    Attributes:
        lr: Rates of the first epoch.
        lr_decay: The factor by which the rate is multiplied after each epoch.
        momentum: The share of the velocity that is kept.
    """

    lr: tuple[float, ...] = several(POSITIVE, help="rates of the first epoch", short="lr", example=(1.0, 0.3, 0.1))
    lr_decay: tuple[float, ...] = several(
        FACTOR, help="the rate is multiplied with this after each epoch", short="decay", example=(0.99, 1.0)
    )
    momentum: tuple[float, ...] = several(
        SHARE, help="the share of the velocity that is kept", short="mom", example=(0.0, 0.9)
    )

    label: ClassVar[str] = "SGD"
    look: ClassVar[Look] = Look("#8a8f98", "#8a8f98", size=3.0, dashes="dotted", layer=0)
    measures: ClassVar[tuple[str, ...]] = ("mean_lr",)

    def order(self, runs: Sequence[RunSpec]) -> list[int]:
        """Runs with equal momentum stand together, those without any last: their velocity is one block of memory."""
        from hotswap.ensemble import Sgd  # noqa: PLC0415  # needs torch, which reading a study does not

        return Sgd.order([run.settings["momentum"] for run in runs])

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        from hotswap.ensemble import Sgd  # noqa: PLC0415  # needs torch, which reading a study does not

        rates, decays, momenta = ([run.settings[name] for run in runs] for name in ("lr", "lr_decay", "momentum"))
        return Sgd(model, theta, rates, decays, momenta)

    @classmethod
    def describe(cls, settings: Mapping[str, float]) -> str:
        """See `Family.describe`: "rate 0.1 × 0.99 per epoch, momentum 0.9"."""
        decay = "" if settings["lr_decay"] == 1 else f" × {settings['lr_decay']:g} per epoch"
        return f"rate {settings['lr']:g}{decay}, momentum {settings['momentum']:g}"
