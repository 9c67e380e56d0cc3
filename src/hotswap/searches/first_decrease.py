"""The line search that the paper's prose describes."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.arrays import Array
from hotswap.searches.base import SEARCHES
from hotswap.searches.downward import DownwardSearch

__all__ = ["FirstDecrease"]


@SEARCHES.register("first_decrease")
@dataclass(frozen=True)
class FirstDecrease(DownwardSearch):
    """Take the first rate that lowers the loss: the walk ends as soon as `f_current < f_start`.

    About one trial a step instead of about two, so the bandit hears less about the rates beside the one it proposed.
    """

    def is_last(self, improved: Array, previous: Array, loss: Array) -> Array:
        """See `DownwardSearch.is_last`."""
        return improved
