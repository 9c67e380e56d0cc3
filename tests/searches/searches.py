"""Searches for tests: one that walks up first, and one that writes down what it hears."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hotswap import Armijo, Search
from hotswap.arrays import Array, namespace


class Climb(NamedTuple):
    arm: Array
    done: Array
    up: Array
    """Whether it still walks to larger rates."""
    top: Array
    bottom: Array
    best: Array
    best_loss: Array


@dataclass(frozen=True)
class UpThenDown(Search):
    """To larger rates while the loss falls; if the first is no better than the start, to smaller ones."""

    def begin(self, proposal: Array, loss_before: Array, *, arms: int, row: int | None = None) -> Climb:
        row = arms if row is None else row
        top = proposal // row * row
        return Climb(
            arm=proposal,
            done=proposal < 0,
            up=proposal >= 0,
            top=top,
            bottom=top + row - 1,
            best=namespace(proposal).full_like(proposal, -1),
            best_loss=loss_before,
        )

    def observe(self, walk: Climb, loss: Array) -> Climb:
        xp = namespace(loss)
        loss = xp.where(xp.isfinite(loss) & xp.logical_not(walk.done), loss, math.inf)
        better = loss < walk.best_loss
        best = xp.where(better, walk.arm, walk.best)
        climbs = walk.up & better & (walk.arm > walk.top)
        turns = walk.up & (best < 0)  # the proposal was too large: from now on downwards
        falls = (turns | (xp.logical_not(walk.up) & (best < 0))) & (walk.arm < walk.bottom)
        done = walk.done | xp.logical_not(climbs | falls)
        step = xp.where(climbs, walk.arm - 1, walk.arm + 1)
        return Climb(
            arm=xp.where(done, walk.arm, step),
            done=done,
            up=walk.up & xp.logical_not(turns),
            top=walk.top,
            bottom=walk.bottom,
            best=best,
            best_loss=xp.minimum(walk.best_loss, loss),
        )

    def choose(self, walk: Climb) -> Array:
        return walk.best


@dataclass(frozen=True)
class Listening(Armijo):
    """Writes down what it is told to expect."""

    told: list[float] = field(default_factory=list, compare=False)

    def observe(self, walk: Any, loss: Array, expected: Array | None = None) -> Any:
        self.told.append(expected)  # type: ignore[arg-type]  # one run: a number
        return super().observe(walk, loss, expected)
