"""Running a benchmark on a Ray cluster: the same runs, options and ledger as on one machine. See `hotswap.cluster`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from uuid import uuid4

from hotswap.bench.posting import BenchWork
from hotswap.bench.running import BenchOptions, Watcher, killed, left
from hotswap.bench.runs import Point, Result, Run
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS, Size
from hotswap.cluster import Checkpoint, Piece, Stored, Where
from hotswap.cluster.dispatch import Dispatch
from hotswap.cluster.joining import Joined
from hotswap.data import Dataset, load
from hotswap.errors import DataError, StudyError, UnitTaken
from hotswap.extensions import loaded_texts
from hotswap.studies.running.origin import occasion
from hotswap.studies.storage.one_writer import only_writer
from hotswap.studies.storage.unit_locks import WAITING

__all__ = ["load_datasets", "run_bench_on_cluster"]


def load_datasets(workloads: Iterable[str], size: Size, report: Callable[[str], None]) -> dict[str, Dataset]:
    """By name, the data sets of some workloads: nodes need not have them.

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


def run_bench_on_cluster(
    store: BenchStore,
    options: BenchOptions,
    data: Mapping[str, Dataset],
    device: str,
    watcher: Watcher,
    cluster: Joined,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train every run that is not there, as `run_bench` does, on a cluster; True if nothing is left then.

    Raises:
        StudyError: Another command writes to the folder.
    """
    deadline = math.inf if options.stop_after is None else time.monotonic() + 60 * options.stop_after
    work = BenchWork(uuid4().hex, device, cluster.per_unit.threads, loaded_texts())
    with only_writer(store.folder), _BenchKeeper(store, options, watcher) as keeper:
        dispatch = Dispatch(
            cluster,
            work,
            dict(data),
            keeper,
            asked_to_stop=lambda: time.monotonic() >= deadline or asked_to_stop(),
        )
        outcome = dispatch.run(keeper.plan(), keeper.plan)
        return not outcome.left and not keeper.plan()


class _BenchKeeper:
    """Plans runs and writes the ledger. See `hotswap.cluster.Keeper` for the methods that are not described here."""

    def __init__(self, store: BenchStore, options: BenchOptions, watcher: Watcher) -> None:
        self._store, self._options, self._watcher = store, options, watcher
        self._known = store.results()  # and what comes: nobody else writes to the ledger
        self._runs: dict[str, Run] = {}
        self._open: set[str] = set()
        self._held: dict[str, ExitStack] = {}
        self._annotate: dict[str, Callable[[str], None]] = {}
        self._points: dict[str, list[Point]] = {}
        self._ended: dict[str, Result] = {}
        self._unwritten: list[Result] = []

    def __enter__(self) -> _BenchKeeper:
        return self

    def __exit__(self, *_: object) -> None:
        for unit in list(self._held):
            self._let_go(unit)

    def plan(self) -> list[Piece]:
        """The runs that are to be trained and that were not planned before: some follow from results."""
        runs, known = left(self._known, self._store.size, self._options, self._runs)
        self._runs.update((run.id, run) for run in runs)
        self._open.update(run.id for run in runs)
        self._watcher.planned(known - len(self._open), known)
        return [Piece(run.id, run) for run in runs]

    def take_up(self, unit: str) -> bool:
        held = ExitStack()
        try:
            self._annotate[unit] = held.enter_context(self._store.holding(self._runs[unit]))
        except UnitTaken as taken:
            self._watcher.say(str(taken))
            return False
        self._held[unit] = held
        self._annotate[unit](WAITING)
        return True

    def checkpoints(self, unit: str) -> Sequence[Checkpoint | Stored]:
        return ()  # a run is short, and begins anew

    def begins(self, unit: str, where: Where) -> None:
        self._annotate[unit](str(where))
        self._points[unit] = []
        self._watcher.begins(self._runs[unit])

    @contextmanager
    def together(self) -> Iterator[None]:
        yield
        self._write()

    def receive(self, unit: str, message: object) -> None:
        match message:
            case Point():
                self._points[unit].append(message)
                self._watcher.measured(self._runs[unit], message)
            case Result():
                self._end(message)
            case _:
                raise StudyError(f"A worker posted {message!r} of {unit}, which nobody asked for.")

    def keep(self, unit: str, checkpoint: Checkpoint | Stored) -> None:
        raise StudyError(f"A worker posted a checkpoint of {unit}, which nobody asked for.")

    def interrupted(self, unit: str, why: str) -> None:
        self._annotate[unit](WAITING)
        self._watcher.say(f"{unit} was interrupted: {why}. It begins anew.")

    def put_down(self, unit: str, *, finished: bool, error: str = "") -> None:
        if error and unit not in self._ended:
            last = error.partition("\n")[0]
            reason = f"It was tried three times; the last time: {last}"
            self._end(killed(self._runs[unit], reason, self._points.get(unit, ())))
            self._write()
        if unit in self._ended:
            self._open.remove(unit)
            self._watcher.ends(self._ended.pop(unit))
        self._let_go(unit)

    def _end(self, result: Result) -> None:
        unit = result.run.id
        self._known[unit] = self._ended[unit] = replace(result, origin={**result.origin, **occasion()})
        self._unwritten.append(self._ended[unit])

    def _write(self) -> None:
        if self._unwritten:
            self._store.record(self._unwritten)
            self._unwritten.clear()

    def _let_go(self, unit: str) -> None:
        self._annotate.pop(unit)("")
        self._held.pop(unit).close()
        self._points.pop(unit, None)
