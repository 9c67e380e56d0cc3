"""The command's side of all units: which run, what comes of each, and what to do when one is interrupted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    RayError,
    RayTaskError,
    TaskCancelledError,
)

from hotswap.cluster import travelling
from hotswap.cluster.joining import Joined
from hotswap.cluster.units import Checkpoint, Keeper, Outcome, Piece, Stored, Work

__all__ = ["FAILURES", "Dispatch"]

FAILURES = 3
"""So many failures without a new checkpoint between them are the end of a unit."""

BREATH = 0.2  # seconds to wait for news before looking whether to stop
MOMENT = 0.1  # seconds of news that are written together
SURVEY = 5.0  # seconds between two looks at how large the cluster is


@dataclass
class _Try:
    """A unit in the hands of Ray."""

    piece: Piece
    stream: Any
    began: bool = False


class Dispatch:
    """Does the work of units on a cluster.

    Args:
        cluster: Where.
        work: What is done with a unit.
        shared: What all units need, sent to each node once.
        keeper: Writes down what comes of them.
        folder: The part of the storage that is this command's.
        asked_to_stop: Once this is True, units stop at their next checkpoints.
    """

    def __init__(
        self,
        cluster: Joined,
        work: Work,
        shared: object,
        keeper: Keeper,
        *,
        folder: str = "units",
        asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._cluster, self._keeper, self._folder, self._asked_to_stop = cluster, keeper, folder, asked_to_stop
        self._references = [ray.put(work), ray.put(shared)]
        self._task: Any = ray.remote(travelling.unit())
        self._tries: dict[Any, _Try] = {}
        self._waiting: deque[Piece] = deque()
        self._failures: dict[str, int] = {}
        self._failed: dict[str, str] = {}
        self._finished = self._left = self._room = 0
        self._surveyed, self._stopping, self._ended = -SURVEY, False, False

    def run(self, pieces: Iterable[Piece], more: Callable[[], Iterable[Piece]] = lambda: ()) -> Outcome:
        """Do all units, or what can be done of them until asked to stop.

        more: is asked, whenever units have been put down, for those that follow from them. They go first, since others
        may follow from them in turn.
        """
        self._waiting.extend(pieces)
        try:
            while self._waiting or self._tries:
                self._look_around()
                self._fill()
                self._take(self._ready(list(self._tries), BREATH))
                if self._ended and not self._stopping:
                    self._waiting.extendleft(reversed(list(more())))
                self._ended = False
        finally:
            for stream in self._tries:
                with suppress(RayError):
                    ray.cancel(stream, force=True)
        return Outcome(self._finished, self._left, self._failed)

    def _look_around(self) -> None:
        if time.monotonic() - self._surveyed >= SURVEY:
            self._room, self._surveyed = self._cluster.room(), time.monotonic()
        if self._stopping or not self._asked_to_stop():
            return
        self._stopping = True
        self._cluster.switch.turn_on.remote()
        self._left += len(self._waiting)
        self._waiting.clear()
        for one in self._tries.values():
            if not one.began:
                ray.cancel(one.stream)

    def _fill(self) -> None:
        """Give Ray as many units as run at once, and some to go on with: all at once would take memory for nothing."""
        while self._waiting and len(self._tries) < 2 * self._room + 2:
            piece = self._waiting.popleft()
            if not self._keeper.take_up(piece.id):
                self._left += 1
                continue
            self._submit(piece)

    def _submit(self, piece: Piece) -> None:
        storage, folder = self._cluster.storage, f"{self._folder}/{piece.id}"
        uri = None if storage is None else storage.uri
        packed = cloudpickle.dumps(  # type: ignore[no-untyped-call]
            (piece.payload, list(self._keeper.checkpoints(piece.id)), uri, folder, self._cluster.switch)
        )
        task = self._task.options(name=piece.id, **self._cluster.options())
        stream = task.remote(self._cluster.expected, self._references, packed)
        self._tries[stream] = _Try(piece, stream)

    def _ready(self, streams: list[Any], patience: float) -> list[Any]:
        """Those that have something to say; if none has, after some patience."""
        if not streams:
            return []
        ready, _ = ray.wait(streams, num_returns=len(streams), timeout=0)
        if not ready and patience:
            ready, _ = ray.wait(streams, num_returns=1, timeout=patience)
        return ready

    def _take(self, ready: list[Any]) -> None:
        """Have the keeper receive together what comes within a moment; then do what has to wait until it is written.

        A disk needs as long for one row as for thousands.
        """
        later: list[Callable[[], None]] = []
        open_ = dict.fromkeys(self._tries)
        deadline = time.monotonic() + MOMENT
        with self._keeper.together() if ready else nullcontext():
            while ready:
                for stream in ready:
                    if not self._advance(self._tries[stream], later):
                        del open_[stream]
                ready = self._ready(list(open_), 0.0) if time.monotonic() < deadline else []
        for deed in later:
            deed()

    def _advance(self, one: _Try, later: list[Callable[[], None]]) -> bool:
        """Receive the next thing that a stream says; False if it was the last."""
        try:
            kind, content = ray.get(next(one.stream))
        except TaskCancelledError:
            later.append(partial(self._put_down, one, finished=False))
        except (NodeDiedError, ObjectLostError):
            later.append(partial(self._again, one, "its node died"))
        except RayTaskError as error:
            later.append(partial(self._fail, one, _last_line(error), str(error)))
        except (RayError, StopIteration) as error:
            later.append(partial(self._fail, one, f"its worker died ({_first_line(error)})", str(error)))
        else:
            if kind == "refused":
                self._cluster.refuse(*content)
                later.append(partial(self._again, one, ""))
            elif kind == "ended":
                later.append(partial(self._put_down, one, finished=content))
            else:
                self._receive(one, kind, content, later)
                return True
        return False

    def _receive(self, one: _Try, kind: str, content: Any, later: list[Callable[[], None]]) -> None:
        unit = one.piece.id
        if kind == "began":
            one.began = True
            self._keeper.begins(unit, content)
            return
        for what, message in content:
            if what == "checkpoint":
                later.append(partial(self._keep, unit, message))
            else:
                self._keeper.receive(unit, message)

    def _keep(self, unit: str, checkpoint: Checkpoint | Stored) -> None:
        self._keeper.keep(unit, checkpoint)
        self._failures.pop(unit, None)

    def _put_down(self, one: _Try, *, finished: bool) -> None:
        del self._tries[one.stream]
        self._keeper.put_down(one.piece.id, finished=finished)
        self._ended = True
        self._finished += finished
        self._left += not finished

    def _again(self, one: _Try, why: str) -> None:
        """Give a unit to Ray once more."""
        if self._stopping:
            self._put_down(one, finished=False)
            return
        del self._tries[one.stream]
        if why:
            self._keeper.interrupted(one.piece.id, why)
        self._surveyed = -SURVEY
        self._submit(one.piece)

    def _fail(self, one: _Try, why: str, whole: str) -> None:
        unit = one.piece.id
        self._failures[unit] = self._failures.get(unit, 0) + 1
        if self._failures[unit] < FAILURES:
            self._again(one, why)
            return
        del self._tries[one.stream]
        self._failed[unit] = why
        self._keeper.put_down(unit, finished=False, error=f"{why}\n\n{whole}")
        self._ended = True


def _last_line(error: RayTaskError) -> str:
    cause = error.cause
    return _first_line(cause) if isinstance(cause, BaseException) else _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
