"""Doing units: what a process needs for them, which run, what comes of each, and how all of it stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from hotswap.errors import HotSwapError, UnitTaken, UnsupportedError
from hotswap.extensions import load_texts

__all__ = ["Function", "Keeper", "Outcome", "Place", "Setting", "Unit", "UnitError", "WorkerDiedError", "do_all"]

GLANCE = 0.2  # seconds between two looks at what is under way, and at whether to stop


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


@dataclass(frozen=True)
class Unit:
    """A unit: its name, and what the function needs to know of it."""

    name: str
    payload: Any = field(repr=False)


class Place(Protocol):
    """Does units somewhere."""

    def room(self) -> int:
        """How many units may be under way."""

    def submit(self, payload: Any) -> Future[Any]:
        """Do a unit. The future may raise `UnitError`; its result is None where the unit was stopped."""

    def stop(self) -> None:
        """Have the units that are under way stop soon."""


class Listener(Protocol):
    """Receives the progress of a command's units, to show it."""

    def say(self, text: str) -> None:
        """Something a person should read."""

    def planned(self, done: int, known: int) -> None:
        """So many units of those that are known are done."""

    def begins(self, unit: str, at: int, end: int, of: str) -> None:
        """A unit is taken up at some epoch, or per cent, of how many."""

    def reaches(self, unit: str, at: int, alive: int = 1, runs: int = 1) -> None:
        """A unit has come so far; of its runs so many are finite, as far as is known."""

    def ends(self, unit: str, how: str, why: str = "") -> None:
        """A unit is finished, put aside, or has ended in another way."""


class Keeper(Protocol):
    """Holds units and stores what comes of them, in the command's process."""

    def holding(self, unit: Unit) -> AbstractContextManager[object]:
        """Hold a unit, or raise `UnitTaken`."""

    def begins(self, unit: Unit) -> bool:
        """A unit that is held is to begin; False if another process has finished it since."""

    def look(self, names: Iterable[str]) -> None:
        """These units are under way: show how far they are."""

    def done(self, unit: Unit, result: Any) -> None:
        """Store what came of a unit."""

    def stopped(self, unit: Unit) -> None:
        """A unit was stopped before its end."""

    def failed(self, unit: Unit, error: UnitError) -> None:
        """Note why a unit failed."""

    def say(self, text: str) -> None:
        """Tell a person."""


@dataclass
class Outcome:
    """How the units of a command ended: how many were finished, how many were not, and why which of them failed."""

    finished: int = 0
    left: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def do_all(
    units: Iterable[Unit],
    place: Place,
    keeper: Keeper,
    asked_to_stop: Callable[[], bool] = lambda: False,
    more: Callable[[], Iterable[Unit]] = lambda: (),
) -> Outcome:
    """Do all units that no other process has, or what can be done until asked to stop.

    more: is asked, whenever a unit has ended, for units that follow from it. They go first, since others may follow
    from them in turn.
    """
    waiting, under_way, outcome = deque(units), dict[Future[Any], tuple[Unit, ExitStack]](), Outcome()
    stopping = False
    with ExitStack() as all_held:
        while waiting or under_way:
            if not stopping and asked_to_stop():
                stopping = True
                place.stop()
                outcome.left += len(waiting)
                waiting.clear()
            while waiting and len(under_way) < place.room():
                _begin(waiting.popleft(), place, keeper, all_held, under_way, outcome)
            ready, _ = wait(under_way, timeout=GLANCE, return_when=FIRST_COMPLETED)
            keeper.look([unit.name for future, (unit, _) in under_way.items() if future not in ready])
            for future in ready:
                unit, held = under_way.pop(future)
                with held:
                    _end(unit, future, keeper, outcome)
            if ready and not stopping:
                waiting.extendleft(reversed(list(more())))
    return outcome


def _begin(
    unit: Unit,
    place: Place,
    keeper: Keeper,
    all_held: ExitStack,
    under_way: dict[Future[Any], tuple[Unit, ExitStack]],
    outcome: Outcome,
) -> None:
    with ExitStack() as held:
        try:
            held.enter_context(keeper.holding(unit))
        except UnitTaken as taken:
            keeper.say(str(taken))
            outcome.left += 1
            return
        if keeper.begins(unit):
            future = place.submit(unit.payload)
            under_way[future] = unit, all_held.enter_context(held.pop_all())


def _end(unit: Unit, future: Future[Any], keeper: Keeper, outcome: Outcome) -> None:
    try:
        result = future.result()
    except CancelledError:
        result = None
    except UnitError as error:
        outcome.failed[unit.name] = str(error)
        keeper.failed(unit, error)
        return
    except UnsupportedError:
        raise
    except HotSwapError as error:  # its sentence says what to do
        outcome.failed[unit.name] = str(error)
        keeper.failed(unit, UnitError(str(error), str(error)))
        return
    if result is None:
        outcome.left += 1
        keeper.stopped(unit)
    else:
        keeper.done(unit, result)
        outcome.finished += 1
