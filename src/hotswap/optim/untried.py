"""Steps without trials: which steps search, and what is remembered of an arm until a loss says what it was worth.

A step that does not search costs little more than one of the base optimizer. The arm that it takes is rewarded in the
step after it, whose gradient pass computes a loss anyway: log f(θ; B) − log f(θ′; B′), with the paper's reward. That is
on another minibatch, so it says less than a trial does, and it costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

from hotswap.errors import SettingError
from hotswap.pacing import Pace, PaceState, When
from hotswap.rewards import Reward

__all__ = ["MOST_MISSED", "NO_STEPS", "Told", "Untried", "pace_for"]

NO_STEPS = PaceState(since=-1, mean=0.0, reference=0.0)
"""Before the first step: `Pace.start` for one run, as plain numbers."""

MOST_MISSED = 100
"""How many steps a bandit may miss before it catches up, where searches are rarer than that."""


class Untried(NamedTuple):
    """An arm that was taken without a trial."""

    arm: int
    loss: float
    """The loss before the step that took it, with the values that are in force since."""


class Told(NamedTuple):
    """What came of an arm that was taken without a trial: all that its reward is computed from."""

    arm: int
    scale: float
    """The reward's state in the step that took it."""
    before: float
    after: float

    def reward(self, by: Reward) -> float:
        """What the arm was worth."""
        return float(by.grant(self.scale, self.before, self.after))


def pace_for(owner: str, every: object, when: object) -> Pace:
    """The pace that an optimizer's arguments `search_every` and `search_when` ask for; `owner` is its class."""
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise SettingError(
            f"{owner}(search_every={every!r}): search_every must be a whole number of at least 1, or None."
        )
    if when is not None and when not in get_args(When):
        choices = ", ".join(repr(choice) for choice in get_args(When))
        raise SettingError(f"{owner}(search_when={when!r}): search_when must be one of {choices}, or None.")
    if every is None and when is None:
        return Pace()
    return Pace(every, when)  # type: ignore[arg-type]  # it is one of the choices
