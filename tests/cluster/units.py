"""Units that need no study: what they do, and a keeper without a folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotswap.cluster import Checkpoint, Stored, Where, Work

__all__ = ["Notes", "counting", "waiting"]


@dataclass
class Notes:
    """A keeper without a folder."""

    last: dict[str, Checkpoint | Stored] = field(default_factory=dict)
    received: dict[str, list[Any]] = field(default_factory=dict)
    ended: dict[str, tuple[bool, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def take_up(self, unit: str) -> bool:
        return unit != "taken"

    def checkpoints(self, unit: str) -> Sequence[Checkpoint | Stored]:
        return [self.last[unit]] if unit in self.last else []

    def begins(self, unit: str, where: Where) -> None:
        pass

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def receive(self, unit: str, message: object) -> None:
        self.received.setdefault(unit, []).append(message)

    def keep(self, unit: str, checkpoint: Checkpoint | Stored) -> None:
        self.last[unit] = checkpoint

    def interrupted(self, unit: str, why: str) -> None:
        self.said.append(f"{unit}: {why}")

    def put_down(self, unit: str, *, finished: bool, error: str = "") -> None:
        self.ended[unit] = (finished, error)


# Functions inside of functions: workers cannot import the tests, so that the code travels.


def counting() -> Work:
    """Counts to four, with a checkpoint at each number."""

    def count(payload: str, shared: str, desk: Any) -> Iterator[bool]:
        if payload == "dies":  # before its first checkpoint: a worker that is killed may take the last one with it
            os.kill(os.getpid(), signal.SIGKILL)
        start = desk.latest(int, desk.post) or 0
        for number in range(start + 1, 5):
            if payload == "raises" and number == 3:
                raise ValueError("three is too many\nfor this one")
            desk.post((shared, number))
            desk.save(number, b"%d" % number)
            yield number == 4
            if payload == "stumbles" and number < 4:
                raise ValueError(f"after {number}")

    return count


def waiting() -> Work:
    """Waits for a file."""

    def wait(payload: str, shared: object, desk: Any) -> Iterator[bool]:
        while not Path(payload).exists():
            time.sleep(0.02)
        yield True

    return wait
