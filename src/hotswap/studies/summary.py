"""The state of a study: the progress, the processes and the checkpoints of its units, and the time that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Summary", "UnitSummary", "seconds_left"]


@dataclass(frozen=True)
class UnitSummary:
    """The state of one unit.

    Attributes:
        id: The unit's name.
        algorithm: The algorithm of every run in it.
        batch_size: The batch size of every run in it.
        runs: How many there are.
        epochs_done: How far training has come, as far as was recorded.
        epochs: How many epochs each run is to have.
        seconds: How long it has been trained.
        diverged: How many of its runs have diverged.
        state: `done`, `running` in some process, or `left`.
        kept: The epoch of its latest checkpoint: if nobody trains it any more, training goes on from there.
        where: The process that trains it, and the node of the process; empty if no process trains it.
        seconds_left: How long the rest may take; None while there is no pace to guess it from.
    """

    id: str
    algorithm: str
    batch_size: int
    runs: int
    epochs_done: int
    epochs: int
    seconds: float
    diverged: int
    state: Literal["done", "running", "left"]
    kept: int = 0
    seconds_left: float | None = None
    where: str = ""


@dataclass(frozen=True)
class Summary:
    """The state of a study; `damaged` has a sentence for each file that cannot be used."""

    name: str
    precision: str
    units: tuple[UnitSummary, ...]
    damaged: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Training time so far, over all units."""
        return sum(unit.seconds for unit in self.units)

    @property
    def seconds_left(self) -> float | None:
        """Training time to come, for one process; None while there is no pace to guess it from."""
        left = [unit.seconds_left for unit in self.units if unit.seconds_left is not None]
        return sum(left) if len(left) == len(self.units) else None


def seconds_left(unit: UnitSummary, units: Sequence[UnitSummary]) -> float | None:
    """Guess from the pace of the unit itself, or else of those most like it: seconds for one epoch of one run."""
    start = unit.epochs_done if unit.state == "running" else unit.kept
    left = unit.runs * (unit.epochs - start)
    if unit.state == "done" or not left:
        return 0.0
    measured = [other for other in units if other.seconds > 0 and other.epochs_done > 0]
    for alike in (
        [other for other in measured if other.id == unit.id],
        [other for other in measured if (other.algorithm, other.batch_size) == (unit.algorithm, unit.batch_size)],
        [other for other in measured if other.algorithm == unit.algorithm],
        measured,
    ):
        if alike:
            return left * sum(u.seconds for u in alike) / sum(u.runs * u.epochs_done for u in alike)
    return None
