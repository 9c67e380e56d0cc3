"""When a step searches: always, every n-th time, or where there is a reason to.

Between searches the values in force apply, and the arm's reward comes from the loss that the next step computes anyway.
One value per run, `(R,)`; an optimizer, which has one run, has plain numbers in place of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from hotswap.arrays import Array, Device, namespace, zeros
from hotswap.errors import SettingError

__all__ = ["Pace", "PaceState", "When"]

When = Literal["unsure", "risen"]


class PaceState(NamedTuple):
    """The state that decides whether the next step searches."""

    since: Array
    """`(R,)` int64: how many steps there have been since the latest search; −1 before the first."""
    mean: Array
    """`(R,)` float64: a running mean of the loss, where `when` is `"risen"`, and else 0."""
    reference: Array
    """`(R,)` float64: what that mean was at the latest search."""


@dataclass(frozen=True)
class Pace:
    """Searches in the first step, and then where `every` or `when` asks for one.

    every: search in every n-th step; None for none but those that `when` asks for.
    when: `"unsure"`: search while the bandit's two best arms overlap (`Bandit.unsure`);
        `"risen"`: search when the running mean of the loss is above what it was at the latest search.
    memory: how much of the running mean each step keeps; 0.9 is a mean over about ten steps.
    """

    every: int | None = 1
    when: When | None = None
    memory: float = 0.9

    def __post_init__(self) -> None:
        every = self.every
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise SettingError(f"Pace(every={every!r}): every must be a whole number of at least 1, or None.")
        if self.when is not None and self.when not in get_args(When):
            choices = ", ".join(repr(choice) for choice in get_args(When))
            raise SettingError(f"Pace(when={self.when!r}): when must be one of {choices}, or None.")
        if every is None and self.when is None:
            raise SettingError("Pace(every=None, when=None): nothing would ever ask for a search; give one of them.")
        if not 0 <= self.memory < 1:
            raise SettingError(f"Pace(memory={self.memory!r}): memory must be in [0, 1).")

    @property
    def always(self) -> bool:
        """Whether every step searches."""
        return self.every == 1

    def start(self, runs: int, device: Device = None) -> PaceState:
        """The state before the first step, as arrays."""
        none = zeros((runs,), "float64", device)
        return PaceState(zeros((runs,), "int64", device) - 1, none, none)

    def follow(self, state: PaceState, loss: Array) -> PaceState:
        """The state after the loss of one more step was seen, before that step searches or does not.

        The mean leaves out a loss that is not finite: it would never be a number again.
        """
        if self.when != "risen":
            return state
        xp = namespace(loss)
        mean = xp.where(state.since < 0, loss, self.memory * state.mean + (1 - self.memory) * loss)
        return state._replace(mean=xp.where(xp.isfinite(loss), mean, state.mean))

    def due(self, state: PaceState, unsure: Array) -> Array:
        """`(R,)` whether the step searches; `unsure` is what the bandit says of itself."""
        due = state.since < 0
        if self.every is not None:
            due = due | (state.since + 1 >= self.every)
        if self.when == "unsure":
            due = due | unsure
        elif self.when == "risen":
            due = due | (state.mean > state.reference)
        return due

    def after(self, state: PaceState, searched: Array) -> PaceState:
        """The state after the step."""
        where = namespace(state.mean).where
        since = where(searched, 0, state.since + 1)
        if self.when != "risen":
            return PaceState(since, state.mean, state.reference)
        return PaceState(since, state.mean, where(searched, state.mean, state.reference))
