"""No search: Algorithm 1 in its purest form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from hotswap.arrays import Array
from hotswap.searches.base import SEARCHES, Search

__all__ = ["NoSearch", "Proposed"]


class Proposed(NamedTuple):
    """A walk without a trial."""

    arm: Array
    """`(R,)` the proposal."""
    done: Array
    """`(R,)` true."""


@SEARCHES.register("no_search")
@dataclass(frozen=True)
class NoSearch(Search):
    """Take the arm that the bandit proposes, without a trial.

    A step costs little more than one of the base optimizer. Nothing protects it: a rate that is too large is taken, and
    shows in the losses of the steps after it.
    """

    tries: ClassVar[bool] = False

    def begin(self, proposal: Array, loss_before: Array, *, arms: int, row: int | None = None) -> Proposed:
        """See `Search.begin`: the walk has ended where it begins."""
        return Proposed(arm=proposal, done=proposal == proposal)  # noqa: PLR0124  # true everywhere

    def observe(self, walk: Proposed, loss: Array, expected: Array | None = None) -> Proposed:
        """See `Search.observe`: there is nothing to observe."""
        return walk

    def choose(self, walk: Proposed) -> Array:
        """See `Search.choose`: the proposal."""
        return walk.arm
