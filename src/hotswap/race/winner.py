"""The winner's run after the race: when a snapshot is kept, and when the winner goes back to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hotswap.race.judging import Score, noise

__all__ = ["FAILURES", "KEPT", "ROLLBACKS", "WINDOW", "Watch"]

WINDOW = 50
"""Steps of the winner from one look at its losses to the next."""

KEPT = 0.02
"""Share of the run from one snapshot of the winner to the next, at least."""

STALE = 5
"""A snapshot is replaced after so many times that long, also while the loss is higher than it was."""

ROLLBACKS = 2
"""How often a winner goes back because its loss rose."""

FAILURES = 2
"""Turns in a row that were not finite, after which a lane is dropped; windows, after which the winner's rate falls."""


class Watch:
    """A watch over the losses of the winner. It is asked every `WINDOW` steps, and changes nothing but itself."""

    def __init__(self) -> None:
        self.baseline: Score | None = None  # the winner's, when the race ended
        self.best: Score | None = None  # the best window's since then
        self.rate = 1.0  # the factor of the winner's rates after rollbacks
        self.rollbacks, self.risen, self.kept_at = 0, 0, 0

    def advice(
        self, losses: Sequence[float], step: int, total: int | None, *, failures: int, judged: bool
    ) -> Literal["keep", "go back", "go on"]:
        """Keep a snapshot of the winner, go back to the last one, or neither.

        Args:
            losses: those since the last look.
            step: steps that the run has taken.
            total: steps of the whole run, if they are known.
            failures: looks in a row, this one included, at which something was not finite.
            judged: whether a judge decides in place of the losses.
        """
        if failures:
            if failures >= FAILURES:
                self.rate = self.rate / 3 if self.rate > 1 / 3**ROLLBACKS else 1.0
            return "go back"
        now, good = Score.of(losses), True
        if not judged and len(losses) > 1:
            good = self.best is None or now.mean <= self.best.mean + noise(now, self.best)
            self.risen = self.risen + 1 if self._has_lost_all(now) else 0
            if self.risen and self.rollbacks <= ROLLBACKS:
                return self._wait_or_go_back(step)
        age, least = step - self.kept_at, max(WINDOW, KEPT * (total or step))
        if age < (least if good else STALE * least):
            return "go on"
        self.kept_at = step
        return "keep"

    def _wait_or_go_back(self, step: int) -> Literal["go back", "go on"]:
        """Go back if the loss was too high at two looks in a row; in vain, the objective must have changed."""
        if self.risen < 2:
            return "go on"
        self.risen, self.rollbacks = 0, self.rollbacks + 1
        if self.rollbacks > ROLLBACKS:  # smaller rates did not help
            self.rate = 1.0
            return "go on"
        self.rate, self.kept_at = self.rate / 3, step
        return "go back"

    def _has_lost_all(self, now: Score) -> bool:
        """Whether the winner is worse than at the race's end, after it had been better."""
        if self.baseline is None:
            self.baseline = now
        before, best = self.baseline, self.best
        if best is None or now.mean < best.mean:
            self.best = now
        return (
            best is not None
            and best.mean < before.mean - noise(best, before)
            and now.mean > before.mean + noise(now, before)
        )
