"""What goes into a ledger, and what it says of where a study stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

__all__ = ["ARM_COLUMNS", "METRIC_COLUMNS", "ArmCount", "MetricRow", "Summary", "UnitSummary", "seconds_left"]

METRIC_COLUMNS = {
    **{"run": "str", "algorithm": "str", "batch_size": "int64", "seed": "int64"},
    **{"lr": "float64", "lr_decay": "float64", "momentum": "float64", "epoch": "int64"},
    **{"train_nll": "float64", "test_error": "float64", "test_nll": "float64", "mean_lr": "float64"},
    **{"trials": "float64", "grad_norm": "float64", "steps": "int64", "seconds": "float64"},
}
"""The columns of `Store.metrics`, in order, and their types. A setting that an algorithm does not have is NaN."""

ARM_COLUMNS = {"run": "str", "epoch": "int64", "arm": "int64", "count": "int64"}
"""The columns of `Store.arms`, in order, and their types."""

ArmCount = tuple[str, int, int, int]
"""Run, epoch, arm, and how often the run took the arm in that epoch."""


@dataclass(frozen=True)
class MetricRow:
    """What one run measured at one epoch. Any float may be NaN or infinite: a run that diverged is data.

    `seconds` counts the training of the run's unit, from its first epoch on.
    """

    run: str
    epoch: int
    train_nll: float
    test_error: float
    test_nll: float
    mean_lr: float
    trials: float
    grad_norm: float
    steps: int
    seconds: float

    def plain(self) -> tuple[str | int | float, ...]:
        """Return the values as Python's own types: SQLite would take a NumPy scalar for a row of bytes."""
        kinds: dict[Any, Callable[[Any], str | int | float]] = {"str": str, "int": int, "float": float}
        return tuple(kinds[field.type](getattr(self, field.name)) for field in fields(self))


@dataclass(frozen=True)
class UnitSummary:
    """Where one unit stands.

    `pid` is the process that trains it, where one does; `seconds_left` is None while there is no pace to guess it from.
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
    pid: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Summary:
    """Where a study stands."""

    name: str
    precision: str
    units: tuple[UnitSummary, ...]

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
    left = unit.runs * (unit.epochs - unit.epochs_done)
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
