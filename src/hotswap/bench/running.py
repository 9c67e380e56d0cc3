"""Running a benchmark: whatever is not there yet, several runs at a time, stoppable at any moment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from hotswap.bench.methods import METHODS
from hotswap.bench.plan import wanted
from hotswap.bench.runs import SETTLED, Point, Result, Run
from hotswap.bench.store import BenchStore
from hotswap.bench.training import train
from hotswap.bench.workloads import WORKLOADS, Size
from hotswap.errors import UnitTaken
from hotswap.studies.running.origin import occasion

__all__ = ["BenchOptions", "Here", "Trainer", "Watcher", "killed", "left", "run_bench"]

GLANCE = 0.2
"""Seconds between two looks at whether to stop."""


class Trainer(Protocol):
    """Trains runs, here or elsewhere. It is asked by as many threads at a time as it has `jobs`."""

    jobs: int

    def train(self, run: Run, watch: Callable[[Point], None]) -> Result:
        """Train a run; whatever happens, there is a result that says so."""

    def stop(self) -> None:
        """Give up what is being trained; results of it do not matter."""


class Here:
    """Trains in this process, one run at a time."""

    jobs = 1

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def train(self, run: Run, watch: Callable[[Point], None]) -> Result:
        """See `Trainer`."""
        return train(run, self.device, watch)

    def stop(self) -> None:
        """See `Trainer`. There is nobody to stop."""


class Watcher(Protocol):
    """Receives the progress, to show it. Its methods are called by several threads."""

    def say(self, text: str) -> None:
        """Something a person should read."""

    def planned(self, done: int, known: int) -> None:
        """So many runs of those that are known are done."""

    def begins(self, run: Run) -> None:
        """A run begins."""

    def measured(self, run: Run, point: Point) -> None:
        """It has come so far."""

    def ends(self, result: Result) -> None:
        """It has ended, somehow."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What to run."""

    workloads: Sequence[str]
    methods: Sequence[str]
    retry_failed: bool = False
    """Also train anew what has raised an error."""
    stop_after: float | None = None
    """Minutes after which no run begins any more."""


def left(
    results: Mapping[str, Result], size: Size, options: BenchOptions, tried: Collection[str] = ()
) -> tuple[list[Run], int]:
    """The runs that are to be trained, as far as is known yet, and how many there are altogether.

    tried: ids of runs that were trained already, whatever came of it.
    """
    runs = wanted(options.workloads, options.methods, size, results)
    kept = {"finished", "diverged"} if options.retry_failed else set(SETTLED)

    def is_left(run: Run) -> bool:
        result = results.get(run.id)
        return run.id not in tried and (result is None or result.state not in kept)

    return [run for run in runs if is_left(run)], len(runs)


def killed(run: Run, reason: str, points: Sequence[Point]) -> Result:
    """What is left of a run whose process has died, after these measurements."""
    settings = dict(METHODS[run.method]().configuration(run.configuration).settings)
    return Result(run, "killed", reason, tuple(points), 0, WORKLOADS[run.workload].version, settings)


def run_bench(
    store: BenchStore,
    options: BenchOptions,
    trainer: Trainer,
    watcher: Watcher,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train every run that is not there and that no other process has; True if nothing is left then.

    `asked_to_stop` is called all the time; once it returns True, no run begins any more.
    """
    session = _Session(store, options, trainer, watcher)
    deadline = math.inf if options.stop_after is None else time.monotonic() + 60 * options.stop_after
    with ThreadPoolExecutor(trainer.jobs) as threads:
        try:
            while session.goes_on(threads, over=asked_to_stop() or time.monotonic() >= deadline):
                pass
        except BaseException:
            trainer.stop()
            raise
    return not left(store.results(), store.size, options, session.tried)[0]


class _Session:
    """What one command has under way."""

    def __init__(self, store: BenchStore, options: BenchOptions, trainer: Trainer, watcher: Watcher) -> None:
        self.store, self.options, self.trainer, self.watcher = store, options, trainer, watcher
        self.tried: set[str] = set()
        self.taken: set[str] = set()
        self.under_way: dict[Future[Result], ExitStack] = {}
        self.queue = self._plan()

    def _plan(self) -> list[Run]:
        self.known = self.store.results()
        runs, known = left(self.known, self.store.size, self.options, self.tried | self.taken)
        elsewhere = sum(name not in self.known or self.known[name].state not in SETTLED for name in self.taken)
        self.watcher.planned(known - len(runs) - len(self.under_way) - elsewhere, known)
        return runs

    def goes_on(self, threads: ThreadPoolExecutor, *, over: bool) -> bool:
        """Fill what is free, wait a moment, store what has ended; False when all is done."""
        while not over and self.queue and len(self.under_way) < self.trainer.jobs:
            self._begin(threads, self.queue.pop(0))
        if not self.under_way:
            # Others may have trained what was planned, and more may follow from that.
            self.queue = self.queue or ([] if over else self._plan())
            return bool(self.queue) and not over
        ended, _ = wait(self.under_way, timeout=GLANCE, return_when=FIRST_COMPLETED)
        for future in ended:
            with self.under_way.pop(future):  # until it is stored, it is ours
                result = future.result()
                self.store.record([replace(result, origin={**result.origin, **occasion()})])
            self.watcher.ends(result)
        if ended:
            self.queue = self._plan()
        return True

    def _begin(self, threads: ThreadPoolExecutor, run: Run) -> None:
        holding = ExitStack()
        try:
            holding.enter_context(self.store.holding(run))
        except UnitTaken as taken:
            self.watcher.say(f"{run.id} is left to {f'process {taken.pid}' if taken.pid else 'another process'}.")
            self.taken.add(run.id)
            return
        if _digest(self.store.results().get(run.id)) != _digest(self.known.get(run.id)):
            holding.close()  # another process has trained it since the plan was made
            self.tried.add(run.id)
            return
        self.tried.add(run.id)
        self.watcher.begins(run)
        work = threads.submit(self.trainer.train, run, lambda point: self.watcher.measured(run, point))
        self.under_way[work] = holding


def _digest(result: Result | None) -> str:
    return "" if result is None else result.digest()
