"""The meaning of the outcomes: the lowest contender and the cost of the race, as values and as two sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hotswap.demo.training import Outcome

__all__ = ["Standout", "Verdict", "judge"]

BASELINE = "AdamW"
"""The contender with whose time the race's time is compared."""

LEVEL = 0.01
"""Losses that differ by no larger share are level."""

THE_RACE = "the race"
"""The name of the race in sentences."""


@dataclass(frozen=True)
class Standout:
    """The contender that ended lowest, by the training loss or by the test error."""

    name: str
    value: float
    next: str
    """The contender that came after the lowest."""
    next_value: float
    level: tuple[str, ...] = ()
    """Contenders with a loss within 1 % of the lowest, or with a test error no higher than chance explains."""


@dataclass(frozen=True)
class Verdict:
    """The conclusions from one demo."""

    test_images: int
    loss: Standout | None
    """The lowest by the training loss; None where nobody learned."""
    error: Standout | None
    """The lowest by the test error; None where nobody learned."""
    won: str = ""
    """The lane that won the race; empty without a race."""
    dropped: int = 0
    """Lanes that the race dropped."""
    share: float = 0.0
    """The share of the race's passes that went to lanes that it dropped."""
    slower: float | None = None
    """The race's processor time over AdamW's."""

    def __str__(self) -> str:
        return " ".join(one[0].upper() + one[1:] for one in (self._lowest(), self._cost()) if one)

    def _lowest(self) -> str:
        if self.loss is None or self.error is None:
            return "No two of them learned anything, so there is nothing to compare."
        loss, error = self.loss, self.error
        if loss.level:
            below = f"within {100 * LEVEL:.0f} % of {_listed(loss.level)}"
        else:
            below = f"{_below(loss.value, loss.next_value)} {loss.next}'s"
        first = f"{loss.name} ended with the lowest training loss, {below}"
        who = "it also" if error.name == loss.name else error.name
        second = f"{who} had the lowest test error, {100 * error.value:.2f} %"
        if error.level:
            apart = f", too close to {_listed(error.level)} to tell apart on {self.test_images:,} test images"
        else:
            apart = f", which is below {error.next}'s by more than chance explains"
        return f"{first}; {second}{apart}."

    def _cost(self) -> str:
        if not self.won:
            return ""
        if self.dropped:
            lanes = "1 lane" if self.dropped == 1 else f"{self.dropped} lanes"
            said = (
                f"The race spent {100 * self.share:.0f} % of its passes on {lanes} that it dropped and kept {self.won}"
            )
        else:
            said = f"The run was too short for a race, so {self.won} trained alone"
        return said + (
            "." if self.slower is None else f"; it took {self.slower:.2f} times {BASELINE}'s processor time."
        )


def judge(outcomes: Sequence[Outcome], test_images: int) -> Verdict:
    """Decide who ended lowest, and what the race cost."""
    names = [THE_RACE if one.standings else one.name for one in outcomes]
    losses = _standout(
        [(name, one.end.loss) for name, one in zip(names, outcomes, strict=True)], lambda _, lowest: LEVEL * lowest
    )
    errors = _standout(
        [(name, one.end.error) for name, one in zip(names, outcomes, strict=True)], partial(_noise, test_images)
    )
    race = next((one for one in outcomes if one.standings), None)
    if race is None or race.standings is None:
        return Verdict(test_images, losses, errors)
    winner, *others = race.standings
    raced = [lane for lane in others if lane.dropped_at]
    beside = next((one for one in outcomes if one.name == BASELINE), None)
    return Verdict(
        test_images,
        losses,
        errors,
        won=winner.name,
        dropped=len(raced),
        share=sum(lane.steps for lane in raced) / race.steps,
        slower=race.seconds / beside.seconds if beside else None,
    )


def _standout(values: Sequence[tuple[str, float]], margin: Callable[[float, float], float]) -> Standout | None:
    """The lowest value; `margin` is the difference up to which a value is level with the lowest one."""
    finite = sorted((value, name) for name, value in values if math.isfinite(value))
    if len(finite) < 2:
        return None
    (lowest, name), *others = finite
    level = tuple(other for value, other in others if value - lowest <= margin(value, lowest))
    return Standout(name, lowest, others[0][1], others[0][0], level)


def _noise(images: int, one: float, other: float) -> float:
    """Two standard errors of the difference of two shares of so many images."""
    return 2 * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def _below(value: float, higher: float) -> str:
    """How far a value is below a higher one."""
    if higher < 2 * value:
        return f"{100 * (1 - value / higher):.0f} % below"
    return f"{higher / value:.1f} times lower than" if value else "0, below"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
