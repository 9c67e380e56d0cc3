"""A unit that does what it is told, and a keeper that stores nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotswap.errors import UnitTaken
from hotswap.work import Unit, UnitError
from hotswap.work.loop import Function

__all__ = ["Notes", "obey", "obeying"]


def obeying() -> Function:
    """The function, as code that travels: workers of a cluster cannot import the tests."""

    def obey(shared: int, payload: tuple[str, str], stopping: Callable[[], bool]) -> Any:
        """Ten times what is shared; or die, once or always; or raise; or wait to be killed or to be stopped."""
        order, place = payload
        file = Path(place)
        if order == "die" or (order == "die once" and not file.exists()):
            file.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        if order == "raise":
            raise ValueError("three is too many\nfor this one")
        if order == "be killed once" and not file.exists():
            file.with_suffix(".part").write_text(str(os.getpid()))
            file.with_suffix(".part").rename(file)
            time.sleep(600)
        if order == "wait":
            file.write_text(str(os.getpid()))
            while not stopping():
                time.sleep(0.02)
            return None
        return 10 * shared

    return obey


def obey(shared: int, payload: tuple[str, str], stopping: Callable[[], bool]) -> Any:
    return obeying()(shared, payload, stopping)


@dataclass
class Notes:
    """Remembers what it was told."""

    taken: set[str] = field(default_factory=set)
    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, UnitError] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)

    @contextmanager
    def holding(self, unit: Unit) -> Iterator[None]:
        if unit.name in self.taken:
            raise UnitTaken(unit.name, 7)
        self.held.add(unit.name)
        yield
        self.held.remove(unit.name)

    def begins(self, unit: Unit) -> bool:
        return unit.name != "finished since"

    def look(self, names: Iterable[str]) -> None:
        assert set(names) <= self.held

    def done(self, unit: Unit, result: Any) -> None:
        self.results[unit.name] = result
        assert unit.name in self.held  # until it is stored

    def stopped(self, unit: Unit) -> None:
        self.ended.append(unit.name)

    def failed(self, unit: Unit, error: UnitError) -> None:
        self.errors[unit.name] = error

    def say(self, text: str) -> None:
        self.said.append(text)
