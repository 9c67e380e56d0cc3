"""What the outcomes mean: who ended lowest, and what the race cost, as values and as two sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hotswap.demo.training import Outcome

__all__ = ["Standout", "Verdict", "judge"]

BASELINE = "AdamW"
"""Whose time the race's is compared with."""

THE_RACE = "the race"
"""What sentences call it."""


@dataclass(frozen=True)
class Standout:
    """Who ended lowest, by the training loss or by the test error."""

    name: str
    value: float
    next: str
    """Who came after it."""
    next_value: float
    level: tuple[str, ...] = ()
    """Whose value differs by no more than chance explains."""


@dataclass(frozen=True)
class Verdict:
    """What can be said of one demo."""

    test_images: int
    loss: Standout | None
    """By the training loss; None where nobody learned."""
    error: Standout | None
    """By the test error; None where nobody learned."""
    won: str = ""
    """The lane that won the race; empty without a race."""
    dropped: int = 0
    """Lanes that the race dropped."""
    share: float = 0.0
    """Of the race's passes, those of lanes that it dropped."""
    slower: float | None = None
    """The race's time over AdamW's."""

    def __str__(self) -> str:
        return " ".join(one[0].upper() + one[1:] for one in (self._lowest(), self._cost()) if one)

    def _lowest(self) -> str:
        if self.loss is None or self.error is None:
            return "No two of them learned anything, so there is nothing to compare."
        loss, error = self.loss, self.error
        first = f"{loss.name} ended with the lowest training loss, {_below(loss.value, loss.next_value)} {loss.next}'s"
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
        return said + ("." if self.slower is None else f"; it took {self.slower:.2f} times as long as {BASELINE}.")


def judge(outcomes: Sequence[Outcome], test_images: int) -> Verdict:
    """Decide who ended lowest, and what the race cost."""
    names = [THE_RACE if one.standings else one.name for one in outcomes]
    losses = _standout([(name, one.end.loss) for name, one in zip(names, outcomes, strict=True)])
    errors = _standout([(name, one.end.error) for name, one in zip(names, outcomes, strict=True)], test_images)
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


def _standout(values: Sequence[tuple[str, float]], images: int | None = None) -> Standout | None:
    """The lowest value; with a number of images values are shares of them, whose noise is known."""
    finite = sorted((value, name) for name, value in values if math.isfinite(value))
    if len(finite) < 2:
        return None
    (value, name), (next_value, following), *_ = finite
    level = () if images is None else tuple(n for v, n in finite[1:] if v - value <= _noise(v, value, images))
    return Standout(name, value, following, next_value, level)


def _noise(one: float, other: float, images: int) -> float:
    """Two standard errors of the difference of two shares."""
    return 2 * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def _below(value: float, higher: float) -> str:
    """How far a value is below a higher one."""
    if higher < 2 * value:
        return f"{100 * (1 - value / higher):.0f} % below"
    return f"{higher / value:.1f} times lower than" if value else "0, below"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
