"""The meaning of the outcomes: the lowest contender and the cost of the race, as values and as two sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hotswap.demo.training import Outcome

__all__ = ["Cost", "Standout", "Verdict", "judge"]

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
class Cost:
    """The cost of the race."""

    won: str
    """The lane that won it."""
    dropped: int
    """Lanes that it dropped."""
    share: float
    """The share of its passes that went to lanes that it dropped."""
    slower: float
    """Its processor time over AdamW's."""

    def __str__(self) -> str:
        said = f"The run was too short for a race, so {self.won} trained alone"
        if self.dropped:
            lanes = "1 lane" if self.dropped == 1 else f"{self.dropped} lanes"
            said = (
                f"The race spent {100 * self.share:.0f} % of its passes on {lanes} that it dropped and kept {self.won}"
            )
        return f"{said}; it took {self.slower:.2f} times {BASELINE}'s processor time."


@dataclass(frozen=True)
class Verdict:
    """The conclusions from one demo."""

    test_images: int
    loss: Standout | None
    """The lowest by the training loss; None where nobody learned."""
    error: Standout | None
    """The lowest by the test error; None where nobody learned."""
    cost: Cost

    def __str__(self) -> str:
        if self.loss is None or self.error is None:
            return f"No two of them learned anything, so there is nothing to compare. {self.cost}"
        loss, error = self.loss, self.error
        below = f"{_below(loss.value, loss.next_value)} {loss.next}'s"
        if loss.level:
            below = f"within {100 * LEVEL:.0f} % of {_listed(loss.level)}"
        apart = f"which is below {error.next}'s by more than chance explains"
        if error.level:
            apart = f"too close to {_listed(error.level)} to tell apart on {self.test_images:,} test images"
        who = "it also" if error.name == loss.name else error.name
        first = f"{loss.name} ended with the lowest training loss, {below}"
        second = f"{who} had the lowest test error, {100 * error.value:.2f} %, {apart}."
        return f"{first[0].upper()}{first[1:]}; {second} {self.cost}"


def judge(outcomes: Sequence[Outcome], test_images: int) -> Verdict:
    """Decide who ended lowest, and what the race cost. One of the contenders raced, and one is `BASELINE`."""
    (race,) = (one for one in outcomes if one.standings)
    (beside,) = (one for one in outcomes if one.name == BASELINE)
    assert race.standings is not None
    names = [THE_RACE if one is race else one.name for one in outcomes]
    winner, *others = race.standings
    raced = [lane for lane in others if lane.dropped_at]
    return Verdict(
        test_images,
        _standout(names, [one.end.loss for one in outcomes], lambda _, lowest: LEVEL * lowest),
        _standout(names, [one.end.error for one in outcomes], partial(_noise, test_images)),
        Cost(winner.name, len(raced), sum(lane.steps for lane in raced) / race.steps, race.seconds / beside.seconds),
    )


def _standout(
    names: Sequence[str], values: Sequence[float], margin: Callable[[float, float], float]
) -> Standout | None:
    """The lowest value; `margin` is the difference up to which a value is level with the lowest one."""
    finite = sorted((value, name) for value, name in zip(values, names, strict=True) if math.isfinite(value))
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
