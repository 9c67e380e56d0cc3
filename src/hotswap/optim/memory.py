"""Everything that a hot-swapped optimizer remembers from step to step, beside the state of the base optimizer."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from hotswap.bandits import Bandit
from hotswap.optim.adaptive import TopWatch
from hotswap.optim.closures import Closure
from hotswap.optim.records import StepRecord
from hotswap.pacing import PaceState
from hotswap.rewards import Reward

__all__ = ["MOST_MISSED", "NO_STEPS", "Memory", "Proposal", "Told", "Untried"]

NO_STEPS = PaceState(since=-1, mean=0.0, reference=0.0)
"""Before the first step: `Pace.start` for one run, as plain numbers."""

MOST_MISSED = 100
"""The most steps that a bandit may miss before it catches up, where searches are rarer than that."""


class Untried(NamedTuple):
    """An arm that was taken without a trial: the loss of the next step says what it was worth.

    Its reward is log f(θ; B) − log f(θ′; B′) with the paper's reward. It is computed on another minibatch, so it says
    less than a trial does, and it costs nothing.
    """

    arm: int
    loss: float
    """The loss before the step that took it, with the values that are in force since."""


class Told(NamedTuple):
    """The outcome of an arm that was taken without a trial: all that its reward is computed from."""

    arm: int
    scale: float
    """The reward's state in the step that took it."""
    before: float
    after: float


class Proposal(NamedTuple):
    """The arm that a bandit proposes for the next step, and its state after proposing."""

    bandit: Bandit
    arm: int
    state: Any


@dataclass
class Memory:
    """One object that changes in place.

    Lightning's wrapper around an optimizer has copies of its attributes, and methods of the wrapper must change both.
    """

    bandit: Any
    """The bandit's state, whatever fields it has."""
    reward_scale: float
    in_force: int
    """The arm that a step without a search applies."""
    searched: bool = False
    """Whether there was a search, or an arm was taken without one."""
    untried: Untried | None = None
    pace: PaceState = NO_STEPS
    """The state that decides whether the next step searches; it stays so where every step does."""
    missed: list[Told | None] = field(default_factory=list)
    """An entry for each step that the bandit has not been told of, see `catch_up`."""
    top: TopWatch | None = None
    """The watch for rates at the top of their grid; None where nobody looks, or has looked enough."""
    last_step: StepRecord | dict[str, Any] | None = None
    """As a dictionary until it is read, so that a step hardly pays for a record that nobody reads. It may have the
    `scale` of the first parameter group, its rate in units of the arm's, in place of the values."""
    proposal: Proposal | None = None
    """The proposal for the next step, made when the bandit has just learned."""
    search_with: tuple[Closure, Tensor | float] | None = None
    """A trial closure for the next step without arguments, and its loss at the start point."""

    def kept(self) -> dict[str, Any]:
        """All of it as it is now, for a step that may be interrupted."""
        return {**vars(self), "missed": list(self.missed), "top": copy(self.top)}

    def catch_up(self, bandit: Bandit, reward: Reward, told: Told | None = None) -> None:
        """Let the bandit learn of the steps that it has missed, and then of an arm that it is told of.

        A step that applies the values in force needs no proposal. Time passes for the bandit all the same, and the arm
        has a reward. Done for many steps together, that takes a fraction of the time that it takes in each.
        """
        for missed in self.missed:
            if missed is not None:
                self._tell(bandit, reward, missed)
            self.bandit = bandit.propose(self.bandit)[1]
        if told is not None:
            self._tell(bandit, reward, told)
            self.untried = None
        self.missed, self.proposal = [], None

    def _tell(self, bandit: Bandit, reward: Reward, told: Told) -> None:
        worth = float(reward.grant(told.scale, told.before, told.after))
        self.bandit = bandit.observe(self.bandit, [[told.arm]], [[worth]])
