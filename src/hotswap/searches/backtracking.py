"""Algorithm 3's line search (BacktrackingLineSearchWithRewards)."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.arrays import Array
from hotswap.searches.base import SEARCHES
from hotswap.searches.downward import DownwardSearch

__all__ = ["Backtracking"]


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
