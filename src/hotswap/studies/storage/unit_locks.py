"""Which process trains which unit: one lock file a unit, `DIR/units/UNIT.lock`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hotswap.errors import UnitTaken
from hotswap.studies.storage.locks import acquire, annotate, holder, is_locked, note, release

__all__ = ["WAITING", "check_free", "hold", "is_trained", "trained_units", "trainer", "whereabouts"]

WAITING = "waiting for room"
"""Where a unit is trained that a command has taken up and a cluster has no room for yet."""

_GLANCE = 0.25  # seconds to insist on a unit's lock: who asks whether it is free holds it for an instant


@contextmanager
def hold(folder: Path, unit: str) -> Iterator[Callable[[str], None]]:
    """Hold a unit's lock; the function says where the unit is trained, if that is not in this process.

    Raises:
        UnitTaken: Another process holds it.
    """
    path = _lock_file(folder, unit)
    lock = acquire(path, _GLANCE)
    if lock is None:
        raise UnitTaken(unit, holder(path))
    try:
        yield partial(annotate, lock)
    finally:
        release(lock)


def check_free(folder: Path, unit: str, wanted: str) -> None:
    """Raise UnitTaken of the unit `wanted` if a process trains `unit`, which shares a run with it."""
    if is_trained(folder, unit):
        raise UnitTaken(wanted, trainer(folder, unit))


def is_trained(folder: Path, unit: str) -> bool:
    """Say whether some process trains a unit."""
    return is_locked(_lock_file(folder, unit))


def trainer(folder: Path, unit: str) -> int | None:
    """The process that trains a unit that is trained; None if it has not written its id yet."""
    return holder(_lock_file(folder, unit))


def whereabouts(folder: Path, unit: str) -> str:
    """Where a unit is trained that is trained, if that is not in the process that holds it; otherwise empty."""
    return note(_lock_file(folder, unit))


def trained_units(folder: Path) -> list[str]:
    """The units that some process trains, whether or not the ledger can be read."""
    units = sorted(path.stem for path in (folder / "units").glob("*.lock") if not path.name.startswith("."))
    return [unit for unit in units if is_trained(folder, unit)]


def _lock_file(folder: Path, unit: str) -> Path:
    return folder / "units" / f"{unit}.lock"
