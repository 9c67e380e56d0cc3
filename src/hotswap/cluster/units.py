"""What the command and its workers say to each other about a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

__all__ = ["Checkpoint", "Desk", "Keeper", "Outcome", "Piece", "Stored", "Where", "Work"]

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """Where a unit stood after so many epochs, as bytes; `keep`: for good, beside those that later ones replace."""

    epoch: int
    data: bytes = field(repr=False)
    keep: bool = False


@dataclass(frozen=True)
class Stored:
    """A checkpoint that a worker wrote to the storage; the name ends in the checksum of what it holds."""

    epoch: int
    storage: str
    name: str


@dataclass(frozen=True)
class Where:
    """Where a unit is trained."""

    node: str
    pid: int

    def __str__(self) -> str:
        return f"{self.node}, process {self.pid}"


@dataclass(frozen=True)
class Piece:
    """A unit as it travels: its name, and what `Work` needs to know of it."""

    id: str
    payload: Any


class Desk(Protocol):
    """What a worker has instead of a folder."""

    def post(self, message: object) -> None:
        """Send something to the keeper, after everything that was sent before."""

    def save(self, epoch: int, data: bytes, *, keep: bool = False) -> None:
        """Send a checkpoint, or write it to the storage if there is one and it is not for good."""

    def latest(self, read: Callable[[bytes], T], report: Callable[[str], None]) -> T | None:
        """The latest checkpoint that `read` can read; `report` is told of those at which it raises ValueError."""

    def stopping(self) -> bool:
        """Whether the unit should write a checkpoint and stop."""


class Work(Protocol):
    """What is done with a unit, by a worker. It travels there by pickle, with what all units share beside it."""

    def __call__(self, payload: Any, shared: Any, desk: Desk) -> Iterator[bool]:
        """Work until the end, or until asked to stop. After each yield, what was posted is sent.

        What is yielded last says whether the unit is finished.
        """


class Keeper(Protocol):
    """Writes down what comes of units; in the command's process, and the only one that writes."""

    def take_up(self, unit: str) -> bool:
        """Hold a unit; False if it is not to be done: it is finished, or in other hands."""

    def checkpoints(self, unit: str) -> Sequence[Checkpoint | Stored]:
        """From which checkpoints a unit may go on, the latest first."""

    def begins(self, unit: str, where: Where) -> None:
        """A worker has begun."""

    def together(self) -> AbstractContextManager[object]:
        """A block in which things are received that are written all, or none; checkpoints are kept after it."""

    def receive(self, unit: str, message: object) -> None:
        """Something that `Desk.post` sent."""

    def keep(self, unit: str, checkpoint: Checkpoint | Stored) -> None:
        """A checkpoint; everything that was posted before it has been received and written."""

    def interrupted(self, unit: str, why: str) -> None:
        """A try has failed, or a node died; there will be another."""

    def put_down(self, unit: str, *, finished: bool, error: str = "") -> None:
        """Let go of a unit: finished, stopped at a checkpoint, or failed for good.

        error: why it failed; the first line has it in short.
        """


@dataclass(frozen=True)
class Outcome:
    """How the units of a command ended.

    Attributes:
        finished: How many were finished here.
        left: How many were not: stopped, or in other hands.
        failed: By unit that failed three times, its error in one line.
    """

    finished: int
    left: int
    failed: Mapping[str, str]
