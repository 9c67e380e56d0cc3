"""Races: copies of a run with different rates on the same minibatches, of which the worse are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hotswap.errors import SettingError
from hotswap.races import ROUNDS, Schedule, plan_rounds
from hotswap.studies.algorithms.adam import rule
from hotswap.studies.algorithms.base import ALGORITHMS, Look
from hotswap.studies.algorithms.rates import RatesFamily
from hotswap.studies.specification.settings import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Check,
    Rule,
    number,
    one,
    several,
    whole,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.specification.study import RunSpec

__all__ = ["RaceFamily"]

PART = number("a number in [0, 1]", lambda x: 0 <= x <= 1)
INSIDE = number("a number in (0, 1)", lambda x: 0 < x < 1)
LONG = 10**12  # steps: for looking at rounds before anyone knows how many there are


def _round(value: object) -> tuple[float, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError
    return INSIDE.read(value[0]), COUNT.read(value[1])  # type: ignore[return-value]  # a float and an int


ROUND = Rule("a pair of a share of all steps, in (0, 1), and of how many lanes stay then, such as [0.1, 1]", _round)


@ALGORITHMS.register("race")
@dataclass(frozen=True, kw_only=True)
class RaceFamily(RatesFamily):
    """A race of AdamW with several rates: what `hotswap.Race` does, as an algorithm of studies.

    A run is one race, and what is measured of it is its leader's. Its column `passes` counts the forward passes of all
    its lanes. The defaults are those with which races were measured, β₂ = 0.99 and the weight decay of 0.1 among them.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many lanes there are, with rates evenly spaced on a logarithmic scale.
        rounds: Until which share of all steps each round goes, and how many lanes stay after it; the last keeps 1.
        least: How many steps a round has at least.
        warmup: Over which share of all steps rates rise to their value.
        decay: Over which share of them, the last ones, they fall to 0.
        beta1: How much of the running average of the gradient is kept at each step.
        beta2: How much of the running average of its square is kept.
        weight_decay: What the weights shrink by at each step, times the rate.
        eps: What is added to the square root of the average square.
        length: How many epochs all these shares are of; 0 stands for those of the study that the family is put into.
            A part of the study, with fewer epochs, is the beginning of the same races.
    """

    high: float = one(POSITIVE, 3e-2, help="the largest rate")
    low: float = one(POSITIVE, 1e-4, help="the smallest rate")
    count: int = one(whole(2), 6, help="how many lanes, with rates evenly spaced on a logarithmic scale")
    rounds: tuple[tuple[float, int], ...] = several(ROUND, ROUNDS, help="ends, as shares of all steps; lanes that stay")
    least: int = one(COUNT, 20, help="how many steps a round has at least")
    warmup: float = one(PART, 0.01, help="over which share of all steps rates rise")
    decay: float = one(PART, 0.4, help="over which share of them, the last ones, rates fall to 0")
    beta1: float = one(SHARE, 0.9, help="how much of the running average of the gradient is kept")
    beta2: float = one(SHARE, 0.99, help="how much of the running average of its square is kept")
    weight_decay: float = one(NOT_NEGATIVE, 0.1, help="what weights shrink by at each step, times the rate")
    eps: float = one(POSITIVE, 1e-8, help="what is added to the square root of the average square")
    length: int = one(whole(0), 0, help="of how many epochs these are shares; 0: of the study's")

    label: ClassVar[str] = "race"
    look: ClassVar[Look] = Look("#8C510A", "#d8a25e", marker="triangle", layer=2)
    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "passes")

    def check(self, check: Check) -> None:
        """See `Settings.check`."""
        super().check(check)
        try:
            plan_rounds(self.rounds, self.count, LONG, self.least)
        except SettingError as wrong:
            raise check.error("rounds", f"cannot be used: {wrong}") from None
        try:
            Schedule(LONG, self.warmup, self.decay)
        except SettingError as wrong:
            raise check.error("decay", f"cannot be used: {wrong}") from None

    def planned_for(self, epochs: int) -> RaceFamily:
        """See `Family.planned_for`."""
        if self.length and epochs > self.length:
            raise Check(self).error(
                f"[{self.name}] length",
                f"is {self.length}, but the study has {epochs} epochs; it must be at least as many, or 0 for these.",
            )
        return self if self.length else replace(self, length=epochs)

    def copies(self) -> int:
        """See `Family.copies`: one for each lane."""
        return self.count

    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """See `Family.update`."""
        from hotswap.ensemble import Raced  # noqa: PLC0415  # needs torch, which reading a study does not

        values = {name: getattr(self, name) for name in ("beta1", "beta2", "weight_decay", "eps")}
        return Raced(
            model,
            theta,
            rule,
            slots=("mean", "square"),
            values=values,
            rates=self.rates,
            epochs=self.length,
            rounds=self.rounds,
            least=self.least,
            warmup=self.warmup,
            decay=self.decay,
        )
