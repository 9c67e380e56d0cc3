"""Whoever has a folder's units trained on a cluster is the only one that writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotswap.errors import StudyError
from hotswap.studies.storage.locks import acquire, holder, is_locked, release
from hotswap.studies.storage.unit_locks import trained_units, trainer

__all__ = ["check_unwritten", "only_writer"]


def check_unwritten(folder: Path) -> None:
    """Raise a StudyError if another process writes to the folder of a study or a benchmark."""
    lock = _keeper_lock(folder)
    if is_locked(lock):
        raise _written(folder, holder(lock))
    for unit in trained_units(folder):
        raise _written(folder, trainer(folder, unit))


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Be the one command that writes to a folder for a cluster.

    Raises:
        StudyError: There is another.
    """
    lock = acquire(_keeper_lock(folder), 0.0)
    if lock is None:
        raise _written(folder, holder(_keeper_lock(folder)))
    try:
        yield
    finally:
        release(lock)


def _keeper_lock(folder: Path) -> Path:
    return folder / "units" / ".keeper.lock"


def _written(folder: Path, pid: int | None) -> StudyError:
    return StudyError(
        f"{folder} is being written to by {f'process {pid}' if pid else 'another process'}, and work on a cluster has "
        "one writer; wait for it, or stop it, or name another folder."
    )
