"""The setting of the processes that do units, and the errors with which a unit can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from hotswap.errors import HotSwapError
from hotswap.extensions import load_texts

__all__ = ["Function", "Setting", "UnitError", "WorkerDiedError"]

Function = Callable[[Any, Any, Callable[[], bool]], Any]
"""A function that does a unit.

Its arguments are the object that all units share, the unit's own payload, and a function that says whether to stop.
"""


class UnitError(HotSwapError, RuntimeError):
    """The function raised an error; `whole` is all that was said."""

    def __init__(self, why: str, whole: str) -> None:
        self.whole = whole
        super().__init__(why)

    def __reduce__(self) -> tuple[type[UnitError], tuple[str, str]]:
        """Travel between processes whole: an exception is otherwise rebuilt from its sentence alone."""
        return type(self), (str(self), self.whole)


class WorkerDiedError(UnitError):
    """Every process that tried a unit has died."""


@dataclass(frozen=True)
class Setting:
    """The function, the shared object and the options that every process needs before its first unit.

    Attributes:
        function: The function that does a unit; found by its name in the other process.
        shared: The object that all units share.
        threads: In how many threads torch computes.
        files: The Python files to load first, by name and text: those of `hotswap --load`.
        key: One for each command; a process that has a setting keeps it for the command's other units.
    """

    function: Function
    shared: Any = None
    threads: int = 1
    files: tuple[tuple[str, str], ...] = ()
    key: str = field(default_factory=lambda: uuid4().hex)

    def prepare(self) -> None:
        """Get ready, in a process that does units."""
        import torch  # noqa: PLC0415  # a command that only looks needs none

        torch.set_num_threads(self.threads)
        load_texts(self.files)
