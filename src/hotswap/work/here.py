"""Places on this machine: this process, or several of its own."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self

from hotswap.errors import HotSwapError
from hotswap.work.loop import Function, Setting, UnitError, WorkerDiedError

__all__ = ["TRIES", "Here", "InThisProcess"]

TRIES = 3
"""So many processes die of a unit before the unit fails."""


class InThisProcess:
    """Does one unit after the other in this process. See `Place`. Errors are raised where they happen."""

    def __init__(self, function: Function, shared: Any, asked_to_stop: Callable[[], bool] = lambda: False) -> None:
        self._function, self._shared, self._asked_to_stop = function, shared, asked_to_stop

    def room(self) -> int:
        """See `Place`."""
        return 1

    def submit(self, payload: Any) -> Future[Any]:
        """See `Place`."""
        future: Future[Any] = Future()
        future.set_result(self._function(self._shared, payload, self._asked_to_stop))
        return future

    def stop(self) -> None:
        """See `Place`. The function asks itself whether to stop."""


class Here:
    """Does units in so many processes. A process that dies is replaced, and its unit is done again.

    The processes end with this one, however it ends.

    Args:
        setting: The setting of the processes.
        jobs: The number of processes.
        is_spent: Says whether a process is of no use after a result, such as one whose GPU has failed.
    """

    def __init__(self, setting: Setting, jobs: int, is_spent: Callable[[Any], bool] = lambda _: False) -> None:
        self._setting, self._jobs, self._is_spent = setting, jobs, is_spent
        self._context = get_context("spawn")
        self._stop = self._context.Event()
        self._threads = ThreadPoolExecutor(jobs)
        self._idle: SimpleQueue[tuple[ProcessPoolExecutor, int] | None] = SimpleQueue()
        self._alive: set[int] = set()
        for _ in range(jobs):
            self._idle.put(None)

    def room(self) -> int:
        """See `Place`."""
        return self._jobs

    def submit(self, payload: Any) -> Future[Any]:
        """See `Place`."""
        return self._threads.submit(self._do, payload)

    def stop(self) -> None:
        """See `Place`."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._stop.set()
        for pid in tuple(self._alive):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._threads.shutdown(cancel_futures=True)

    def _do(self, payload: Any) -> Any:
        for _ in range(TRIES):
            process = self._idle.get()
            try:
                process = process or self._new()
                failed, result = process[0].submit(_do_here, payload).result()
                if failed is None and self._is_spent(result):
                    self._kill(process)
                    process = None
            except BrokenProcessPool:
                self._kill(process)
                process = None
                if self._stop.is_set():
                    return None
                continue
            finally:
                self._idle.put(process)
            if failed is not None:
                raise failed
            return result
        why = f"the process that did it was killed {TRIES} times, perhaps by the system, for want of memory"
        raise WorkerDiedError(why, why)

    def _new(self) -> tuple[ProcessPoolExecutor, int]:
        pool = ProcessPoolExecutor(1, self._context, _prepare_here, (self._setting, self._stop))
        pid = pool.submit(os.getpid).result()
        self._alive.add(pid)
        return pool, pid

    def _kill(self, process: tuple[ProcessPoolExecutor, int] | None) -> None:
        if process is not None:
            self._alive.discard(process[1])
            with suppress(ProcessLookupError):
                os.kill(process[1], signal.SIGKILL)
            process[0].shutdown(wait=False)


_HERE: list[Any] = []  # in a process of `Here`: its setting, and the event that says to stop


def _prepare_here(setting: Setting, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which says what becomes of units
    Thread(target=_end_with_command, daemon=True).start()
    setting.prepare()
    _HERE[:] = [setting, stop]


def _end_with_command() -> None:
    command = parent_process()
    assert command is not None
    command.join()
    os._exit(1)


def _do_here(payload: Any) -> tuple[Exception | None, Any]:
    """The error that the function raised, if it did, and what it returned."""
    setting, stop = _HERE
    return attempt(setting, payload, stop.is_set)


def attempt(setting: Setting, payload: Any, stopping: Callable[[], bool]) -> tuple[Exception | None, Any]:
    """Do a unit in a process that is ready for it; errors are returned, since not all of them can travel."""
    try:
        return None, setting.function(setting.shared, payload, stopping)
    except HotSwapError as error:
        return error, None
    except Exception as error:
        return UnitError(f"{type(error).__name__}: {error}", traceback.format_exc()), None
