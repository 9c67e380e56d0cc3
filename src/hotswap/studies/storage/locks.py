"""Locks that the system releases: never a lease that runs out.

A lock belongs to an open file, so the system lets go of it when the process ends, however it ends. The file itself
stays: were it deleted, two processes could hold the locks of two files of one name.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["acquire", "annotate", "holder", "is_locked", "note", "release"]

_held: set[int] = set()


def acquire(path: Path, patience: float) -> int | None:
    """Lock a file and write our process id into it; None if another has it for all of `patience` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    _held.add(descriptor)
    try:
        while not _lock(descriptor):
            if time.monotonic() > deadline:
                release(descriptor)
                return None
            time.sleep(0.01)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BaseException:
        release(descriptor)
        raise
    return descriptor


def release(descriptor: int) -> None:
    """Let go of a lock that `acquire` gave."""
    if descriptor in _held:
        _held.remove(descriptor)
        os.close(descriptor)


def _forget() -> None:
    """Close the copies in a process forked from the holder: the lock would outlive the holder with them."""
    for descriptor in tuple(_held):
        release(descriptor)


def is_locked(path: Path) -> bool:
    """Say whether some process holds the lock, by trying to take it."""
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return not _lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """Read who holds a lock that is held; None if it has not written its id yet."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="utf-8").partition("\n")[0])
    return None


def annotate(descriptor: int, text: str) -> None:
    """Leave a line for those who ask `note` about a lock that `acquire` gave."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()}\n{text}\n".encode())


def note(path: Path) -> str:
    """The line that the holder of a lock left; empty if it left none."""
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8").partition("\n")[2].strip()
    return ""


if sys.platform == "win32":

    def _lock(descriptor: int, *, shared: bool = False) -> bool:  # Windows has none that are shared
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # a locked byte cannot be read, so not one of the process id
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    os.register_at_fork(after_in_child=_forget)

    def _lock(descriptor: int, *, shared: bool = False) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
