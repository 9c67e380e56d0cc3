"""Stand-ins for the paper's three algorithms, until each of them has a class of its own in `studies.algorithms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.specification.settings import FACTOR, POSITIVE, SHARE, several

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.specification.study import RunSpec

__all__ = ["modern"]


class _StandIn(Family):
    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        raise NotImplementedError


@ALGORITHMS.register("sgd")
@dataclass(frozen=True, kw_only=True)
class _Sgd(_StandIn):
    lr: tuple[float, ...] = several(POSITIVE, (0.1,), help="rates", short="lr")
    lr_decay: tuple[float, ...] = several(FACTOR, (1.0,), help="decays", short="decay")
    momentum: tuple[float, ...] = several(SHARE, (0.0,), help="momenta", short="mom")

    label: ClassVar[str] = "SGD"
    look: ClassVar[Look] = Look("#8a8f98", "#8a8f98", size=3.0, dashes="dotted", layer=0)

    @classmethod
    def describe(cls, settings: Mapping[str, float]) -> str:
        decay = "" if settings["lr_decay"] == 1 else f" × {settings['lr_decay']:g} per epoch"
        return f"rate {settings['lr']:g}{decay}, momentum {settings['momentum']:g}"


@ALGORITHMS.register("adadelta")
@dataclass(frozen=True, kw_only=True)
class _AdaDelta(_StandIn):
    label: ClassVar[str] = "AdaDelta"
    look: ClassVar[Look] = Look("#D55E00", "#f0883e", "triangle", filled=False, dashes="dashed", layer=1)


@ALGORITHMS.register("ducb")
@dataclass(frozen=True, kw_only=True)
class _Ducb(_StandIn):
    rates: tuple[float, ...] = several(POSITIVE, (1.0,), help="rates")

    label: ClassVar[str] = "DUCB"
    look: ClassVar[Look] = Look("#0072B2", "#56b4e9", layer=2)
    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "trials")

    def arms(self) -> tuple[float, ...]:
        return self.rates


def modern(family: Any) -> Family:
    """A family of a study as a `Family`."""
    if isinstance(family, Family):
        return family
    kind: Any = ALGORITHMS[family.algorithm]
    return kind(rates=family.rates) if kind is _Ducb else kind()
