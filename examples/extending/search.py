"""A search that may walk up: to larger rates as long as they help, and to smaller ones only if the first does not."""

from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, namespace
from hotswap.searches import SEARCHES, Search


class Climb(NamedTuple):
    arm: Array  # (R,) what to try next; `arm` and `done` every search has, the rest is this one's own
    done: Array
    way: Array  # −1: to larger rates, 1: to smaller ones, 0: the first trial will tell
    top: Array
    bottom: Array
    best: Array
    best_loss: Array


@SEARCHES.register("up_then_down")
@dataclass(frozen=True)
class UpThenDown(Search):
    def begin(self, proposal: Array, loss_before: Array, *, arms: int, row: int | None = None) -> Climb:
        row = row or arms  # arms of one row differ in their rate alone
        top, none = proposal // row * row, proposal * 0
        return Climb(proposal, none > 0, none, top, top + row - 1, none - 1, loss_before)

    def observe(self, walk: Climb, loss: Array) -> Climb:
        xp = namespace(loss)
        better = xp.isfinite(loss) & (loss < walk.best_loss) & xp.logical_not(walk.done)
        way = xp.where(walk.way == 0, xp.where(better, -1, 1), walk.way)
        at_end = xp.where(way < 0, xp.logical_not(better) | (walk.arm == walk.top), better | (walk.arm == walk.bottom))
        done = walk.done | at_end
        best, best_loss = xp.where(better, walk.arm, walk.best), xp.where(better, loss, walk.best_loss)
        return Climb(xp.where(done, walk.arm, walk.arm + way), done, way, walk.top, walk.bottom, best, best_loss)

    def choose(self, walk: Climb) -> Array:
        return walk.best
