"""The line search that the paper's prose describes."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.arrays import Array
from hotswap.searches.base import Search

__all__ = ["FirstDecrease"]


@dataclass(frozen=True)
class FirstDecrease(Search):
    """Take the first rate that lowers the loss: the walk ends as soon as `f_current < f_start`.

    About one trial a step instead of about two, so the bandit hears less about the rates beside the one it proposed.
    """

    def _seen_enough(self, improved: Array, previous: Array, loss: Array) -> Array:
        return improved
