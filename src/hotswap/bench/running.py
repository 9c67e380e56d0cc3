"""Running a benchmark: whatever is not there yet, several runs at a time, stoppable at any moment."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import torch

from hotswap.bench.methods import METHODS
from hotswap.bench.plan import wanted
from hotswap.bench.runs import SETTLED, Point, Result, Run
from hotswap.bench.store import WAITING, BenchStore
from hotswap.bench.training import Stopped, train
from hotswap.bench.workloads import WORKLOADS, Size
from hotswap.data import Dataset, load
from hotswap.data.registry import hand_over
from hotswap.errors import DataError
from hotswap.extensions import loaded_texts
from hotswap.store import Folder, occasion
from hotswap.store.folder import ABOUT
from hotswap.work import InThisProcess, Listener, Place, Setting, UnitError, do_all
from hotswap.work import Unit as Named

__all__ = ["BenchOptions", "BenchWork", "left", "load_datasets", "run_bench", "train_run"]


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The workloads and methods to run, and when to retry and to stop."""

    workloads: Sequence[str]
    methods: Sequence[str]
    retry_failed: bool = False
    """Train runs that have raised an error anew, too."""
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


def load_datasets(workloads: Iterable[str], size: Size, report: Callable[[str], None]) -> dict[str, Dataset]:
    """By name, the data sets of some workloads: nodes of a cluster need not have them.

    One that cannot be had here is left out. Nodes may have it; if not, the rows of its runs say so.
    """
    names = {WORKLOADS[workload].data[size] for workload in workloads if size in WORKLOADS[workload].data}
    found = {}
    for name in sorted(names):
        try:
            found[name] = load(name, report=report)
        except DataError as error:
            report(f"{name} is not sent to the nodes, which may have it: {error}")
    return found


def run_bench(
    store: BenchStore,
    options: BenchOptions,
    device: str,
    listener: Listener,
    asked_to_stop: Callable[[], bool] = lambda: False,
    *,
    elsewhere: Callable[[Setting], Place] | None = None,
    threads: int = 1,
    data: Mapping[str, Dataset] | None = None,
) -> bool:
    """Train every run that is not there and that no other process has; True if nothing is left then.

    Args:
        store: The benchmark's folder.
        options: What to run.
        device: On which device.
        listener: Is told of the progress.
        asked_to_stop: Once it returns True, the runs that are under way are given up.
        elsewhere: Makes the place where runs are trained, if that is not this process.
        threads: In how many threads a run is trained elsewhere.
        data: The data sets that other processes are given; those that are not there they load.
    """
    work = BenchWork(store.folder.resolve(), device, dict(data or {}))
    place: Place
    if elsewhere is None:
        tell: Callable[[Run, Point], None] = lambda run, point: listener.reaches(run.id, point.percent)  # noqa: E731
        place = InThisProcess(lambda shared, run, stop: train_run(shared, run, stop, tell), work, asked_to_stop)
    else:
        place = elsewhere(Setting(train_run, work, threads, loaded_texts()))
    keeper = _BenchKeeper(store, options, listener, elsewhere=elsewhere is not None)
    while (units := keeper.plan()) and not asked_to_stop():
        do_all(units, place, keeper, asked_to_stop, keeper.plan)
    return not left(store.results(), store.size, options, keeper.tried)[0]


@dataclass(frozen=True)
class BenchWork:
    """The parts that all runs of a command share.

    Attributes:
        folder: The benchmark's folder, which not every process sees.
        device: The device on which runs are trained.
        data: Data sets by name, which nodes of a cluster need not have.
        key: One for each command; a process takes the data over once.
    """

    folder: Path
    device: str
    data: Mapping[str, Dataset] = field(repr=False)
    key: str = field(default_factory=lambda: uuid4().hex)


_HANDED_OVER: set[str] = set()


def train_run(
    work: BenchWork, run: Run, stopping: Callable[[], bool], tell: Callable[[Run, Point], None] | None = None
) -> Result | None:
    """Train a run in whatever process this is; whatever happens, there is a result that says so. None: it was stopped.

    There are no checkpoints: a run is short, and begins anew.
    """
    if tell is None:
        if work.key not in _HANDED_OVER:
            hand_over(one.with_own_labels() for one in work.data.values())
            _HANDED_OVER.add(work.key)
        _keep_data(run)
        tell = _noting(work)

    def watch(point: Point) -> None:
        tell(run, point)
        if stopping():
            raise Stopped

    try:
        result = train(run, work.device, watch)
    except Stopped:
        return None
    if work.device.startswith("cuda"):
        torch.cuda.empty_cache()  # for processes that share the GPU
    return result


def _keep_data(run: Run) -> None:
    """Load the data set of a run once for all runs of this process; where that fails, the run itself will say why."""
    name = WORKLOADS[run.workload].data.get(run.size)
    if name is not None:
        with suppress(Exception):
            hand_over([replace(load(name), name=name)])  # which is what `load` returns from now on


def _noting(work: BenchWork) -> Callable[[Run, Point], None]:
    """Leaves notes in the benchmark's folder, where this process sees it."""
    folder = Folder(work.folder, {}) if (work.folder / ABOUT).is_file() else None
    where = f"{socket.gethostname()}, process {os.getpid()}"

    def tell(run: Run, point: Point) -> None:
        if folder is not None:
            folder.tell(run.id, percent=point.percent, where=where)

    return tell


class _BenchKeeper:
    """Plans runs, holds them and stores what comes of them. See `hotswap.work.Keeper`."""

    def __init__(self, store: BenchStore, options: BenchOptions, listener: Listener, *, elsewhere: bool) -> None:
        self._store, self._options, self._listener, self._elsewhere = store, options, listener, elsewhere
        minutes = math.inf if options.stop_after is None else options.stop_after
        self._deadline = time.monotonic() + 60 * minutes
        self.tried: set[str] = set()
        self._open: set[str] = set()
        self._planned: dict[str, str] = {}

    def plan(self) -> list[Named]:
        """The runs that are to be trained and that were not planned before: some follow from results."""
        results = self._store.results()
        runs, known = left(results, self._store.size, self._options, self._planned)
        if time.monotonic() >= self._deadline:
            runs = []
        self._planned.update((run.id, _digest(results.get(run.id))) for run in runs)
        self._open.update(run.id for run in runs)
        self._listener.planned(known - len(self._open), known)
        return [Named(run.id, run) for run in runs]

    def holding(self, unit: Named) -> AbstractContextManager[None]:
        return self._store.holding(unit.payload)

    def begins(self, unit: Named) -> bool:
        if time.monotonic() >= self._deadline:
            return False
        if _digest(self._store.results().get(unit.name)) != self._planned[unit.name]:
            self._open.discard(unit.name)  # another process has trained it since the plan was made
            return False
        if self._elsewhere:
            self._store.units.tell(unit.name, where=WAITING)
        self.tried.add(unit.name)
        self._listener.begins(unit.name, 0, 100, "%")
        return True

    def look(self, names: Iterable[str]) -> None:
        for name in names if self._elsewhere else ():
            percent = self._store.units.note(name).get("percent")
            if isinstance(percent, int):
                self._listener.reaches(name, percent)

    def done(self, unit: Named, result: Result) -> None:
        self._end(replace(result, origin={**result.origin, **occasion()}))

    def stopped(self, unit: Named) -> None:
        self.tried.discard(unit.name)

    def failed(self, unit: Named, error: UnitError) -> None:
        run: Run = unit.payload
        settings = dict(METHODS[run.method]().configuration(run.configuration).settings)
        reason = " ".join(str(error).split())
        self._end(Result(run, "killed", reason, (), 0, WORKLOADS[run.workload].version, settings, occasion()))

    def say(self, text: str) -> None:
        self._listener.say(text)

    def _end(self, result: Result) -> None:
        self._store.record([result])
        self._open.discard(result.run.id)
        self._listener.ends(result.run.id, result.state, result.reason)


def _digest(result: Result | None) -> str:
    return "" if result is None else result.digest()
