"""Where a study stands: what is done, what is running, what would be kept, and how long the rest may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Summary", "UnitSummary", "seconds_left"]


@dataclass(frozen=True)
class UnitSummary:
    """Where one unit stands.

    Attributes:
        id: The unit's name.
        algorithm: Of every run in it.
        batch_size: Of every run in it.
        runs: How many there are.
        epochs_done: How far training has come, as far as was recorded.
        epochs: How many epochs each run is to have.
        seconds: How long it has been trained.
        diverged: How many of its runs have diverged.
        state: `done`, `running` in some process, or `left`.
        kept: The epoch of its latest checkpoint: if nobody trains it any more, training goes on from there.
        where: Which process trains it, on which node, if one does.
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
    """Where a study stands; `damaged` has a sentence for each file that cannot be used."""

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
