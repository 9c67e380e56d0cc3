"""A search that walks to larger rates, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, namespace, places
from hotswap.searches.base import SEARCHES, Search, check_max_trials

__all__ = ["BothWays", "WalkBothWays"]


class WalkBothWays(NamedTuple):
    """One step's walk so far: above the proposal it goes up, below it down. A loss that is not finite counts as +∞."""

    proposal: Array
    """`(R,)` the arm the walk began at."""
    largest: Array
    """`(R,)` the arm of the largest rate in its row."""
    smallest: Array
    """`(R,)` the arm of the smallest rate in its row."""
    arm: Array
    """`(R,)` the arm to try next."""
    done: Array
    """`(R,)` whether the walk has ended."""
    trials: Array
    """`(R,)` how many trials there have been."""
    loss_before: Array
    """`(R,)` f at the start point."""
    previous: Array
    """`(R,)` the loss that the next trial is compared with: of the arm beside it, from which the walk comes; f at the
    start point before the first trial."""
    best: Array
    """`(R,)` the arm of the lowest loss below `loss_before`; −1 while there is none."""
    best_loss: Array
    """`(R,)` that loss; `loss_before` while there is none."""


@SEARCHES.register("both_ways")
@dataclass(frozen=True)
class BothWays(Search):
    """Walk to larger rates while that helps, and else to smaller ones; take the best of what was tried.

    The proposal is tried first. If it beat the start point, larger rates follow while each is better than the one
    before. If the first of them is not better, or there is none, the walk goes down from the proposal; and so it does
    if the proposal did not beat the start point. The way down ends as that of `Backtracking` does, at the first trial
    that is worse than the one before once some trial has beaten the start point, or at the smallest rate. If no trial
    beat the start point, no step is taken.

    max_trials: end the walk after this many trials, `None` for as many as there are arms.
    """

    max_trials: int | None = None

    def __post_init__(self) -> None:
        check_max_trials(self, self.max_trials)

    def begin(self, proposal: Array, loss_before: Array, *, arms: int, row: int | None = None) -> WalkBothWays:
        """See `Search.begin`."""
        xp = namespace(proposal)
        row = arms if row is None else row
        largest = proposal // row * row
        return WalkBothWays(
            proposal=proposal,
            largest=largest,
            smallest=largest + (row - 1),
            arm=proposal,
            done=proposal != proposal,  # noqa: PLR0124  # false everywhere
            trials=xp.full_like(proposal, 0),
            loss_before=loss_before,
            previous=loss_before,
            best=xp.full_like(proposal, -1),
            best_loss=loss_before,
        )

    def observe(self, walk: WalkBothWays, loss: Array, expected: Array | None = None) -> WalkBothWays:
        """See `Search.observe`."""
        xp = namespace(loss)
        loss = xp.where(xp.isfinite(loss) & xp.logical_not(walk.done), loss, math.inf)
        best_loss = xp.minimum(walk.best_loss, loss)
        helps = loss < walk.previous
        climbs = helps & (walk.arm <= walk.proposal) & (walk.arm > walk.largest)
        first_above = walk.arm == walk.proposal - 1
        turns = xp.logical_not(climbs) & ((walk.arm == walk.proposal) | (first_above & xp.logical_not(helps)))
        worse = (best_loss < walk.loss_before) & (loss > walk.previous)
        falls = (walk.arm > walk.proposal) & xp.logical_not(worse)
        there = xp.where(climbs, walk.arm - 1, xp.where(turns, walk.proposal, walk.arm) + 1)
        goes_on = (climbs | turns | falls) & (there <= walk.smallest)
        trials = xp.where(walk.done, walk.trials, walk.trials + 1)
        if self.max_trials is not None:
            goes_on = goes_on & (trials < self.max_trials)
        done = walk.done | xp.logical_not(goes_on)
        # Below the proposal comes after it, also where a larger rate was tried in between. That one was no better, so
        # the best loss is the proposal's.
        previous = xp.where(turns & first_above, best_loss, loss)
        return WalkBothWays(
            proposal=walk.proposal,
            largest=walk.largest,
            smallest=walk.smallest,
            arm=xp.where(done, walk.arm, there),
            done=done,
            trials=trials,
            loss_before=walk.loss_before,
            previous=xp.where(walk.done, walk.previous, previous),
            best=xp.where(loss < walk.best_loss, walk.arm, walk.best),
            best_loss=best_loss,
        )

    def choose(self, walk: WalkBothWays) -> Array:
        """See `Search.choose`."""
        return walk.best

    def foresee(self, walk: WalkBothWays, count: int) -> Array:
        """See `Search.foresee`.

        As long as the walk may turn, larger and smaller rates take turns: p, p − 1, p + 1, p − 2, p + 2 … from the
        proposal p on, and the rest of one side where the other has ended. Every walk meets its arms in this order. A
        walk that cannot turn any more goes straight on.
        """
        xp = namespace(walk.arm)
        proposal, arm = walk.proposal[:, None], walk.arm[:, None]
        larger, smaller = proposal - walk.largest[:, None], walk.smallest[:, None] - proposal
        both = xp.minimum(larger, smaller)
        place = places(count, walk.arm) + (arm < proposal)  # the first larger rate is the second arm of that order
        half = (place + 1) // 2
        turn_by_turn = xp.where(place % 2 == 1, proposal - half, proposal + half)
        one_side = xp.where(larger > smaller, proposal - (place - both), proposal + (place - both))
        may_turn = xp.where(place <= 2 * both, turn_by_turn, one_side)
        ahead = places(count, walk.arm)
        straight = xp.where(arm < proposal, arm - ahead, arm + ahead)
        turning = (arm == proposal) | (arm == proposal - 1)
        foreseen = xp.where(turning, may_turn, straight)
        return xp.minimum(xp.maximum(foreseen, walk.largest[:, None]), walk.smallest[:, None])
