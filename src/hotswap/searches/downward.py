"""Searches that walk from the proposed arm to smaller rates, one arm at a time: those of the paper.

The paper has two. Its pseudo-code (Algorithm 3, BacktrackingLineSearchWithRewards) is `Backtracking`, which goes on
while the loss keeps falling. Its prose is `FirstDecrease`, which stops at the first rate that lowers the loss.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from hotswap.arrays import Array, namespace, places
from hotswap.errors import SettingError
from hotswap.searches.base import SEARCHES, Search, check_max_trials, is_whole

__all__ = ["Backtracking", "DownwardSearch", "FirstDecrease", "Walk", "WhenStuck"]

WhenStuck = Literal["stay", "start", "smallest"]


class Walk(NamedTuple):
    """One step's walk so far. Losses are float64; a loss that is not finite counts as +∞."""

    start: Array
    """`(R,)` the arm the walk began at."""
    last: Array
    """`(R,)` the last arm it may try."""
    arm: Array
    """`(R,)` the arm to try next."""
    done: Array
    """`(R,)` whether the walk has ended."""
    loss_before: Array
    """`(R,)` f at the start point."""
    first: Array
    """`(R,)` the loss of the first trial; f at the start point before it."""
    previous: Array
    """`(R,)` the loss of the latest trial; f at the start point before the first."""
    best: Array
    """`(R,)` the arm of the lowest loss that is enough, which is below `loss_before`; −1 while there is none."""
    best_loss: Array
    """`(R,)` that loss; `loss_before` while there is none."""

    @property
    def improved(self) -> Array:
        """`(R,)` whether some trial has beaten the start point, by enough."""
        return self.best_loss < self.loss_before


@dataclass(frozen=True)
class DownwardSearch(Search):
    """A walk from large rates to small ones; a subclass says in `is_last` when it ends, and in `is_enough`, if it asks
    for more than a decrease, which trials may be taken.

    headroom: begin this many arms above the proposal (never above the largest). A walk that ends above the proposal
        leaves it untried, and a bandit that asks for untried arms first, as `DiscountedUCB` does, proposes it again and
        again: only `Backtracking` with a headroom of 1 always comes to the proposal.
    when_stuck: what to take if no trial beat the start point (by enough): `"stay"` takes no step (the author's port);
        `"start"` takes the first arm tried (the other reading of `α_best ← startIndex`), `"smallest"` the last one
        tried; neither takes an arm whose trial was not finite.
    max_trials: end the walk after this many trials, `None` for as many as there are arms.
    """

    headroom: int = 0
    when_stuck: WhenStuck = "stay"
    max_trials: int | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not is_whole(self.headroom) or self.headroom < 0:
            raise SettingError(f"{name}(headroom={self.headroom!r}): headroom must be a whole number, 0 or more.")
        if self.when_stuck not in get_args(WhenStuck):
            choices = ", ".join(repr(choice) for choice in get_args(WhenStuck))
            raise SettingError(f"{name}(when_stuck={self.when_stuck!r}): when_stuck must be one of {choices}.")
        check_max_trials(self, self.max_trials)

    @abstractmethod
    def is_last(self, improved: Array, previous: Array, loss: Array) -> Array:
        """`(R,)` whether the trial that gave `loss` ends the walk; it ends at the smallest rate in any case.

        `improved`: whether this trial or an earlier one has beaten the start point, by enough; `previous`: the loss of
        the trial before it, or that at the start point for the first trial.
        """

    def is_enough(self, walk: Walk, loss: Array, expected: Array | None) -> Array:
        """`(R,)` whether a trial that gave `loss`, +∞ for one that is not finite, has beaten the start point by enough
        to be taken. By default any decrease is enough; whatever else is asked for comes on top of it.

        `walk` is that before the trial; `expected` is given to searches with `needs_slope`, see `Search.observe`.
        """
        return loss < walk.loss_before

    def begin(self, proposal: Array, loss_before: Array, *, arms: int, row: int | None = None) -> Walk:
        """See `Search.begin`."""
        xp = namespace(proposal)
        row = arms if row is None else row
        first_of_row = proposal // row * row
        start = xp.maximum(proposal - self.headroom, first_of_row)
        last = first_of_row + (row - 1)
        if self.max_trials is not None:
            last = xp.minimum(last, start + (self.max_trials - 1))
        return Walk(
            start=start,
            last=last,
            arm=start,
            done=start != start,  # noqa: PLR0124  # false everywhere
            loss_before=loss_before,
            first=loss_before,
            previous=loss_before,
            best=xp.full_like(start, -1),
            best_loss=loss_before,
        )

    def observe(self, walk: Walk, loss: Array, expected: Array | None = None) -> Walk:
        """See `Search.observe`."""
        xp = namespace(loss)
        loss = xp.where(xp.isfinite(loss) & xp.logical_not(walk.done), loss, math.inf)
        enough = xp.where(self.is_enough(walk, loss, expected), loss, math.inf)
        best_loss = xp.minimum(walk.best_loss, enough)
        improved = best_loss < walk.loss_before
        done = walk.done | self.is_last(improved, walk.previous, loss) | (walk.arm >= walk.last)
        return Walk(
            start=walk.start,
            last=walk.last,
            arm=xp.where(done, walk.arm, walk.arm + 1),
            done=done,
            loss_before=walk.loss_before,
            first=xp.where((walk.arm == walk.start) & xp.logical_not(walk.done), loss, walk.first),
            previous=xp.where(walk.done, walk.previous, loss),
            best=xp.where(enough < walk.best_loss, walk.arm, walk.best),
            best_loss=best_loss,
        )

    def choose(self, walk: Walk) -> Array:
        """See `Search.choose`."""
        if self.when_stuck == "stay":
            return walk.best
        fallback, loss = (walk.start, walk.first) if self.when_stuck == "start" else (walk.arm, walk.previous)
        xp = namespace(loss)
        return xp.where(walk.improved | xp.logical_not(xp.isfinite(loss)), walk.best, fallback)

    def foresee(self, walk: Walk, count: int) -> Array:
        """See `Search.foresee`: the next smaller rates, as far as there are any."""
        return namespace(walk.arm).minimum(walk.arm[:, None] + places(count, walk.arm), walk.last[:, None])


@SEARCHES.register("backtracking")
@dataclass(frozen=True)
class Backtracking(DownwardSearch):
    """Go on to smaller rates while the loss keeps falling; take the best of what was tried.

    The walk ends at the first trial with `f_current > f_prev` once some trial had `f_best < f_start`, or at the
    smallest rate. `f_prev` of the first trial is `f_start`. This is the paper's pseudo-code, about two trials a step;
    its prose describes `FirstDecrease`.
    """

    def is_last(self, improved: Array, previous: Array, loss: Array) -> Array:
        """See `DownwardSearch.is_last`."""
        return improved & (loss > previous)


@SEARCHES.register("first_decrease")
@dataclass(frozen=True)
class FirstDecrease(DownwardSearch):
    """Take the first rate that lowers the loss: the walk ends as soon as `f_current < f_start`.

    About one trial a step instead of about two, so the bandit hears less about the rates beside the one it proposed.
    """

    def is_last(self, improved: Array, previous: Array, loss: Array) -> Array:
        """See `DownwardSearch.is_last`."""
        return improved
