"""Where what a unit measures goes, and where its checkpoints come from: all that training knows of the outside.

On one machine that is the study's folder. A worker of a cluster never sees the folder; it posts the same calls to the
command that does (`hotswap.studies.running.posting`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from hotswap.ensemble.snapshots import Snapshot, load_latest, save
from hotswap.studies.specification.plan import Unit
from hotswap.studies.storage.checkpoint_files import checkpoint_folder
from hotswap.studies.storage.rows import ArmCount, MetricRow
from hotswap.studies.storage.store import Store

__all__ = ["FolderKeeper", "UnitKeeper"]


class UnitKeeper(Protocol):
    """Keeps what one unit measures, in the order in which it is told."""

    def finished(self) -> int:
        """For how many epochs the unit is finished."""

    def record(self, epoch: int, rows: Sequence[MetricRow], counts: Sequence[ArmCount], *, seconds: float) -> None:
        """Keep what all runs measured after an epoch; a second time in the place of the first."""

    def diverged(self, run: str, epoch: int) -> None:
        """Note that a run has diverged."""

    def finish(self, epochs: int, provenance: Mapping[str, Any]) -> None:
        """Note that the unit is finished, and what did it."""

    def save(self, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], *, keep: bool) -> None:
        """Keep a checkpoint; `keep`: for good."""

    def latest(self, report: Callable[[str], None]) -> Snapshot | None:
        """The latest checkpoint that is whole; `report` is told of any that is not."""


class FolderKeeper:
    """Keeps a unit in a study's folder. See `UnitKeeper` for the methods."""

    def __init__(self, store: Store, unit: Unit) -> None:
        self.store, self.unit = store, unit
        self.folder = checkpoint_folder(store.folder, unit.id, [run.id for run in unit.runs])

    def finished(self) -> int:
        """See `UnitKeeper`."""
        return self.store.finished(self.unit)

    def record(self, epoch: int, rows: Sequence[MetricRow], counts: Sequence[ArmCount], *, seconds: float) -> None:
        """See `UnitKeeper`."""
        self.store.record(self.unit, epoch, rows, counts, seconds=seconds)

    def diverged(self, run: str, epoch: int) -> None:
        """See `UnitKeeper`."""
        self.store.diverged(run, epoch)

    def finish(self, epochs: int, provenance: Mapping[str, Any]) -> None:
        """See `UnitKeeper`."""
        self.store.finish(self.unit, epochs, provenance)

    def save(self, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], *, keep: bool) -> None:
        """See `UnitKeeper`."""
        save(self.folder, epoch, tensors, notes, keep=keep)

    def latest(self, report: Callable[[str], None]) -> Snapshot | None:
        """See `UnitKeeper`."""
        return load_latest(self.folder, report)
