"""What an optimizer decides in each step before Algorithm 2 begins: whether to search, and whether to go back.

With the paper's settings every step searches, and nothing ever goes back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from hotswap.arms import Value
from hotswap.guards import Judgement
from hotswap.optim.guarding import NO_SNAPSHOT
from hotswap.optim.probing import StartPoint
from hotswap.optim.records import StepRecord, applied
from hotswap.optim.untried import MOST_MISSED, Told
from hotswap.optim.user_warnings import warn_of_going_back
from hotswap.optim.validation import refuse_loss
from hotswap.optim.wrapping import Proposal, WrappingOptimizer
from hotswap.pacing import PaceState

__all__ = ["Deciding", "Decision"]

UNGUARDED = Judgement(NO_SNAPSHOT, back=False, keep=False, earned=0.0)


class Decision(NamedTuple):
    """What a step decides when its loss is known."""

    loss: float
    """f(θ; B), as all processes see it."""
    proposal: Proposal | None
    """Where it begins: a search, or, with a search that tries nothing, the step. None: the values in force apply."""
    told: Told | None
    """What the arm of the step before was worth, where the bandit has not been told yet."""
    pace: PaceState


class Deciding(WrappingOptimizer):
    """Decides when to search and when to go back."""

    # --- the bandit ---------------------------------------------------------------------------------------------------

    def _propose(self) -> Proposal:
        """Where to start from; known already, unless this is the first step or the bandit was exchanged."""
        memory = self._memory
        memory.catch_up(self.bandit, self.reward)
        known = memory.proposal
        if known is None or known.bandit is not self.bandit:
            arm, state = self.bandit.propose(memory.bandit)
            known = memory.proposal = Proposal(self.bandit, arm.item(), state)
        return known

    def _tell(self, told: Told | None) -> None:
        """Tell the bandit what has come of an arm, where something is known, before it proposes."""
        if told is not None:
            self._tell_reward(told.arm, told.reward(self.reward))

    def _tell_reward(self, arm: int, reward: float) -> None:
        memory = self._memory
        memory.catch_up(self.bandit, self.reward)
        memory.bandit = self.bandit.observe(memory.bandit, [[arm]], [[reward]])
        memory.untried = memory.proposal = None

    # --- when to search -----------------------------------------------------------------------------------------------

    def _may_search(self) -> bool:
        """Whether the next step may have trials. What `search_when` says is known only when the step has its loss."""
        pace = self._pace
        return self.search.tries and (pace.when is not None or bool(pace.due(self._memory.pace, unsure=False)))

    def _decide(self, loss: float, *, apart: bool) -> Decision:
        """Reward what the step before has taken untried, and decide where this one begins.

        Where trials are judged `apart`, by another closure, this loss matters only to arms that are not tried.
        Whether the bandit is unsure depends on all that it could know; otherwise it can wait until it has to propose.
        """
        pace, memory, unsure = self._pace, self._memory, False
        told: Told | None = None
        waiting, state = memory.untried, memory.pace
        if not apart or waiting is not None:
            self._check_loss(loss, "the start point")
        if waiting is not None:  # what the loss has become says what that arm is worth
            told = Told(waiting.arm, memory.reward_scale, waiting.loss, loss)
        if not pace.always:
            state = pace.follow(state, loss)
        if pace.when == "unsure":
            self._tell(told)
            told = None
            unsure = bool(self.bandit.unsure(self._propose().state)[0])
        if pace.due(state, unsure):
            self._tell(told)
            return Decision(loss, self._propose(), None, state)
        if apart:
            self._check_loss(loss, "the start point")
        return Decision(loss, None, told, state)

    def _pass_time(self, decision: Decision) -> None:
        """After the step: for the bandit, which has proposed or will have, and for the pace."""
        memory, pace = self._memory, self._pace
        if memory.proposal is not None:
            memory.bandit = memory.proposal.state
        else:
            memory.missed.append(decision.told)
            if len(memory.missed) >= MOST_MISSED:
                memory.catch_up(self.bandit, self.reward)
        memory.searched, memory.proposal = True, None
        if not pace.always:
            memory.pace = pace.after(decision.pace, decision.proposal is not None)

    def _check_loss(self, loss: float, where: str) -> None:
        """Raise for a start point that no trial can be compared with, and for a loss that the reward cannot judge."""
        if 0 <= loss < math.inf:
            return
        negative = loss < 0 and math.isfinite(loss) and not self.reward.accepts_negative
        if negative or (where == "the start point" and not math.isfinite(loss)):
            refuse_loss(loss, where)

    # --- when to go back ----------------------------------------------------------------------------------------------

    @property
    def _is_new_to_guard(self) -> bool:
        """Whether the guard has yet to see which modules have buffers."""
        return self._guarding is not None and self._guarding.snapshot is None

    def _judge(self, loss: float) -> Judgement:
        """What the guard says to a loss; it takes a snapshot where one is due."""
        guarding = self._guarding
        if guarding is None:
            return UNGUARDED
        if math.isfinite(loss):
            self._check_loss(loss, "the start point")
        verdict = guarding.judge(loss, self._memory.in_force, self.arms.row, self.reward, self._memory.reward_scale)
        if verdict.keep:
            guarding.keep(self._probe)
        return verdict

    @torch.no_grad()
    def _go_back(self, start: StartPoint, earned: float) -> None:
        """Be where the snapshot is, and tell the bandit what the arm has done that was taken last."""
        memory, guarding = self._memory, self._guarding
        assert guarding is not None  # it has just said so
        guarding.go_back(self._probe)
        if self._checks.first_time("went back"):
            warn_of_going_back(start.seen, self._applied(memory.in_force).items())
        self._tell_reward(memory.in_force, earned)
        memory.last_step = StepRecord(
            start=memory.in_force,
            arm=None,
            values=self._applied(None),
            loss_before=start.seen,
            loss_after=math.nan,
            trials=(),
            aux=start.aux,
            rolled_back=True,
        )

    def _watch_the_base(self) -> None:
        if self._guarding is not None:
            self._guarding.watch_the_base(self._probe)

    def _allowed(self, arm: int) -> int:
        """The arm, or the one below it that the guard allows."""
        return arm if self._guarding is None else self._guarding.allowed(arm, self.arms.row)

    def _applied(self, arm: int | None) -> dict[str, Value]:
        """What an arm means in the first parameter group; what is there where none was taken."""
        if arm is not None:
            return applied(self.arms, arm, self._probe.move.scale(self.base.param_groups[0]))
        own = self.base.param_groups[0] | self._setters.now
        return {name: 0.0 if name == "lr" else own[name] for name in self.arms.names}
