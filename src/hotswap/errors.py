"""Every exception of our own.

    HotSwapError
    ├── SettingError        (ValueError)    a wrong argument, said at construction
    ├── ClosureError        (RuntimeError)  a closure that does not do what a step needs
    │   └── LossError       (RuntimeError)  a loss that cannot be used: not finite at the start point, or negative
    ├── UnsupportedError    (RuntimeError)  a combination that would be silently wrong, so it is refused
    ├── CheckpointError     (ValueError)    a state that does not belong to this optimizer
    └── DataError           (RuntimeError)  a data set that cannot be had, or whose bytes are not the right ones

Each message is one sentence on what is wrong and where, and one on what to do about it.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ClosureError",
    "DataError",
    "HotSwapError",
    "LossError",
    "SettingError",
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
