"""A search that may walk up: to larger rates while they help, else down."""

from dataclasses import dataclass
from typing import NamedTuple

from hotswap.arrays import Array, namespace
from hotswap.searches import SEARCHES, Search


class Climb(NamedTuple):
    arm: Array  # (R,) what to try next: every walk has this and `done`
    done: Array
    way: Array  # −1: to larger rates, 1: to smaller ones, 0: not known yet
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
        ends = {"top": top, "bottom": top + row - 1}
        return Climb(arm=proposal, done=none > 0, way=none, best=none - 1, best_loss=loss_before, **ends)

    def observe(self, walk: Climb, loss: Array) -> Climb:
        xp, arm = namespace(loss), walk.arm
        better = xp.isfinite(loss) & (loss < walk.best_loss) & xp.logical_not(walk.done)
        way = xp.where(walk.way == 0, xp.where(better, -1, 1), walk.way)
        up_ends, down_ends = xp.logical_not(better) | (arm == walk.top), better | (arm == walk.bottom)
        done = walk.done | xp.where(way < 0, up_ends, down_ends)
        walk = walk._replace(arm=xp.where(done, arm, arm + way), done=done, way=way)
        best, best_loss = xp.where(better, arm, walk.best), xp.where(better, loss, walk.best_loss)
        return walk._replace(best=best, best_loss=best_loss)

    def choose(self, walk: Climb) -> Array:
        return walk.best
