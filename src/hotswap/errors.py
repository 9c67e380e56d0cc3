"""Every exception of our own.

    HotSwapError
    ├── SettingError        (ValueError)    a wrong argument, said at construction
    ├── ClosureError        (RuntimeError)  a closure that does not do what a step needs
    │   └── LossError       (RuntimeError)  a loss that cannot be used: not finite at the start point, or negative
    ├── UnsupportedError    (RuntimeError)  a combination that would be silently wrong, so it is refused
    ├── CheckpointError     (ValueError)    a state that does not belong to this optimizer
    ├── DataError           (RuntimeError)  a data set that cannot be had, or whose bytes are not the right ones
    └── StudyError          (RuntimeError)  a study's or benchmark's folder or tables that cannot be used
        ├── DamagedError    (RuntimeError)  a stored file that is not as it was written
        ├── UnitTaken       (RuntimeError)  a unit of a study that another process is training
        └── UnsafeNameError (RuntimeError)  a name in a file that could lead to another place

Each message is one sentence on what is wrong and where, and one on what to do about it.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ClosureError",
    "DamagedError",
    "DataError",
    "HotSwapError",
    "LossError",
    "SettingError",
    "StudyError",
    "UnitTaken",
    "UnsafeNameError",
    "UnsupportedError",
]


class HotSwapError(Exception):
    """Base of every exception that hotswap raises itself."""


class SettingError(HotSwapError, ValueError):
    """An argument has a value that cannot be meant."""


class ClosureError(HotSwapError, RuntimeError):
    """A closure, or what it returned, does not fit what a step needs."""


class LossError(ClosureError):
    """The loss at the start point is not finite, or its sign makes the reward meaningless."""


class UnsupportedError(HotSwapError, RuntimeError):
    """A combination that would go wrong without anyone noticing."""


class CheckpointError(HotSwapError, ValueError):
    """A saved state does not belong to this optimizer."""


class DataError(HotSwapError, RuntimeError):
    """A data set cannot be reached, or what arrived is not what it should be."""


class StudyError(HotSwapError, RuntimeError):
    """The folder of a study or benchmark cannot be used as asked, or what is to be merged into it contradicts it."""


class DamagedError(StudyError):
    """A stored file is not as it was written; `why` says how that was noticed."""

    def __init__(self, file: object, why: str) -> None:
        self.file, self.why = file, why
        super().__init__(f"{file} is damaged ({why}); put back a copy of it, or delete it to have it trained again.")

    def __reduce__(self) -> tuple[type[DamagedError], tuple[object, str]]:
        """Travel between processes whole: an exception is otherwise rebuilt from its sentence alone."""
        return type(self), (self.file, self.why)


class UnsafeNameError(StudyError):
    """A file has a name that could lead to another place, or become part of a page as something else than text."""


class UnitTaken(StudyError):  # noqa: N818 (an everyday outcome of asking, not a failure)
    """Another process is training this unit; `pid` is its process, or None where that is not known yet."""

    def __init__(self, unit: str, pid: int | None) -> None:
        self.unit = unit
        self.pid = pid
        super().__init__(f"Unit {unit} is being trained by {f'process {pid}' if pid else 'another process'}.")

    def __reduce__(self) -> tuple[type[UnitTaken], tuple[str, int | None]]:
        """Travel between processes whole: an exception is otherwise rebuilt from its sentence alone."""
        return type(self), (self.unit, self.pid)
