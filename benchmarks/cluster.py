"""What a study on Ray costs beside the same units in turn: `python -m benchmarks.cluster --keep results/benchmarks`.

- The overhead of a unit: how long units take that do nothing, one after the other on one worker.
- The keeper: rows per second that workers send as fast as they can and the command writes to a ledger on this disk,
  how large the ledger is then, and how long it takes to read it back as a table.
- Efficiency: a study of eight equal units on 1, 2 and 4 workers of one core beside the same units in turn in this
  process, with one thread, too. The first time, workers have to start; the second time they are there.
- Sleepers: units that only sleep and record one row, to see what the scheduler and the ledger can carry.
- Before and after: how long it takes to plan a study of many runs and to enter them in a ledger, and how long the
  report on the paper's study takes, which comes with hotswap.

Ray starts on this machine with as many cores as there are workers, whether or not the machine has them.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from benchmarks.measuring import describe, keep
from hotswap.cluster import Checkpoint, PerUnit, Piece, Stored, Where, Work
from hotswap.cluster.dispatch import Dispatch
from hotswap.cluster.joining import Joined, join
from hotswap.data import load_digits
from hotswap.studies import NetworkSpec, SgdFamily, StudySpec, plan
from hotswap.studies.running.clustered import run_on_cluster
from hotswap.studies.running.keeping import FolderKeeper
from hotswap.studies.running.train import RunOptions, run_study
from hotswap.studies.storage.rows import MetricRow
from hotswap.studies.storage.store import LEDGER, Store

RATES = tuple(10 ** -(i / 100) for i in range(100))


@dataclass(frozen=True)
class Kept:
    """What the keeper took: rows a second, bytes of ledger a row, seconds to read a million rows."""

    rows: int
    per_second: float
    bytes_per_row: float
    read_million: float


@dataclass(frozen=True)
class Efficiency:
    """A study on so many workers, in seconds; `in_turn` is the same without Ray."""

    workers: int
    in_turn: float
    first: float
    again: float

    @property
    def share(self) -> float:
        """Of what so many workers could do at best."""
        return self.in_turn / self.again / self.workers


@dataclass(frozen=True)
class Sleepers:
    """Units that slept: how many, how long each, on how many workers, and how long all of them took."""

    units: int
    sleep: float
    workers: int
    seconds: float

    @property
    def beyond(self) -> float:
        """Seconds of a worker that a unit took beside its sleep."""
        return self.seconds * self.workers / self.units - self.sleep


class Quiet:
    """A listener that shows nothing."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


class Ledger:
    """A keeper that records what is posted for a unit: pairs of epoch and rows."""

    def __init__(self, store: Store | None, units: dict[str, Any]) -> None:
        self.store, self.units = store, units
        self.began: list[float] = []

    def take_up(self, unit: str) -> bool:
        return True

    def checkpoints(self, unit: str) -> Sequence[Checkpoint | Stored]:
        return ()

    def begins(self, unit: str, where: Where) -> None:
        self.began.append(time.perf_counter())

    def together(self) -> AbstractContextManager[object]:
        return nullcontext() if self.store is None else self.store.transaction()

    def receive(self, unit: str, message: Any) -> None:
        if self.store is not None:
            epoch, rows = message
            FolderKeeper(self.store, self.units[unit]).record(epoch, rows, (), seconds=0.0)

    def keep(self, unit: str, checkpoint: Checkpoint | Stored) -> None:
        pass

    def interrupted(self, unit: str, why: str) -> None:
        pass

    def put_down(self, unit: str, *, finished: bool, error: str = "") -> None:
        if error:
            raise RuntimeError(error)


@contextmanager
def started(workers: int) -> Iterator[Joined]:
    with join(None, PerUnit(), None, print, num_cpus=workers, object_store_memory=200_000_000) as joined:
        yield joined


def study_of(units: int, runs: int, epochs: int) -> StudySpec:
    """Equal units of `runs` runs each: one for each seed, if split so."""
    family = SgdFamily(lr=RATES[:runs], lr_decay=(1.0,), momentum=(0.9,))
    return StudySpec(
        name="scale",
        dataset="digits",
        train_images=None,
        network=NetworkSpec(hidden=(64, 32)),
        families=(family,),
        batch_sizes=(64,),
        seeds=tuple(range(units)),
        epochs=epochs,
    )


def idle() -> Work:
    """Does nothing; a function in a function, since workers cannot import benchmarks."""

    def work(payload: Any, shared: Any, desk: Any) -> Iterator[bool]:
        yield True

    return work


def sleeping() -> Work:
    def work(payload: Any, shared: Any, desk: Any) -> Iterator[bool]:
        seconds, rows = payload
        time.sleep(seconds)
        desk.post((1, rows))
        yield True

    return work


def sending() -> Work:
    def work(payload: Any, shared: Any, desk: Any) -> Iterator[bool]:
        for epoch, rows in payload:
            desk.post((epoch, rows))
            yield False
        yield True

    return work


def row(run: str, epoch: int) -> MetricRow:
    values = [math.sqrt(2 + epoch + i) for i in range(6)]  # with all their digits, as measured ones have
    return MetricRow(run, epoch, *values, steps=epoch, seconds=math.sqrt(epoch))


def overhead(joined: Joined, units: int) -> float:
    """Seconds from one unit's begin to the next one's, the median."""
    ledger = Ledger(None, {})
    Dispatch(joined, idle(), None, ledger).run(Piece(str(n), None) for n in range(units + 2))
    return median(after - before for before, after in zip(ledger.began[1:], ledger.began[2:], strict=False))


def warm_up(joined: Joined) -> None:
    """Have all workers started."""
    work, pieces = sleeping(), [Piece(str(n), (0.5, None)) for n in range(joined.room())]
    Dispatch(joined, work, None, Ledger(None, {})).run(pieces)


def keeper(joined: Joined, folder: Path, epochs: int, units: int = 4, runs: int = 100) -> Kept:
    study = study_of(units, runs, epochs)
    planned = {unit.id: unit for unit in plan(study, runs)}
    with Store.create(folder, study, precision="fp32", max_runs=runs) as store:
        pieces = [
            Piece(name, [(epoch, [row(run.id, epoch) for run in unit.runs]) for epoch in range(1, epochs + 1)])
            for name, unit in planned.items()
        ]
        ledger = Ledger(store, planned)
        warm_up(joined)
        Dispatch(joined, sending(), None, ledger).run(pieces)
        taken = time.perf_counter() - ledger.began[0]
        began = time.perf_counter()
        rows = len(store.metrics())
        read = time.perf_counter() - began
    return Kept(rows, rows / taken, (folder / LEDGER).stat().st_size / rows, 1e6 * read / rows)


def efficiency(workers: int, folder: Path, in_turn: float, epochs: int) -> Efficiency:
    with started(workers) as joined:
        first, again = (on_ray(joined, folder / f"{workers}-{turn}", epochs) for turn in (1, 2))
    return Efficiency(workers, in_turn, first, again)


def turn_by_turn(folder: Path, epochs: int) -> float:
    study, options = study_of(8, 20, epochs), RunOptions(max_runs=20)
    with Store.create(folder, study, precision="fp32", max_runs=20) as store:
        began = time.perf_counter()
        run_study(store, study, load_digits(), options, Quiet())
        return time.perf_counter() - began


def on_ray(joined: Joined, folder: Path, epochs: int) -> float:
    study, options = study_of(8, 20, epochs), RunOptions(max_runs=20)
    with Store.create(folder, study, precision="fp32", max_runs=20) as store:
        began = time.perf_counter()
        run_on_cluster(store, study, load_digits(), options, Quiet(), joined)
        return time.perf_counter() - began


def sleepers(joined: Joined, folder: Path, units: int, sleep: float) -> Sleepers:
    study = study_of(units, 1, 1)
    planned = {unit.id: unit for unit in plan(study, 1)}
    with Store.create(folder, study, precision="fp32", max_runs=1) as store:
        pieces = [Piece(name, (sleep, [row(unit.runs[0].id, 1)])) for name, unit in planned.items()]
        warm_up(joined)
        began = time.perf_counter()
        outcome = Dispatch(joined, sleeping(), None, Ledger(store, planned)).run(pieces)
        taken = time.perf_counter() - began
    if outcome.finished != units:
        raise RuntimeError(f"{units - outcome.finished} units are missing.")
    return Sleepers(units, sleep, joined.room(), taken)


def planning(folder: Path, runs: int) -> float:
    """Seconds a run, from the specification to a ledger that knows all of them."""
    study = study_of(runs // 100, 100, 1)
    began = time.perf_counter()
    Store.create(folder, study, precision="fp32", max_runs=100).close()
    return (time.perf_counter() - began) / len(study.runs())


def reporting(folder: Path) -> float:
    """Seconds that the command takes for the report on the paper's 1,110 runs."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "hotswap", "report", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=200, help="units that do nothing")
    parser.add_argument("--rows", type=int, default=200_000, help="rows that the keeper takes")
    parser.add_argument("--epochs", type=int, default=300, help="of the study on 1, 2 and 4 workers")
    parser.add_argument("--sleepers", type=int, default=10_000, help="units that sleep")
    parser.add_argument("--sleep", type=float, default=0.1, help="seconds that each of them sleeps")
    parser.add_argument("--runs", type=int, default=100_000, help="of the study that is only planned")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console, device = Console(width=110), torch.device("cpu")
    console.print(f"{describe(device)}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with console.status("empty units"), started(1) as joined:
            beside = overhead(joined, options.units)
        console.print(f"An empty unit: {1e3 * beside:.1f} ms.")
        with console.status("rows"), started(4) as joined:
            kept = keeper(joined, folder / "rows", max(1, options.rows // 400))
        console.print(kept)
        with console.status("in turn"):
            in_turn = turn_by_turn(folder / "in turn", options.epochs)
        rows = []
        for workers in (1, 2, 4):
            with console.status(f"{workers} workers"):
                rows.append(efficiency(workers, folder, in_turn, options.epochs))
            console.print(rows[-1], f"{rows[-1].share:.0%}")
        with console.status("sleepers"), started(8) as joined:
            slept = sleepers(joined, folder / "sleepers", options.sleepers, options.sleep)
        console.print(slept, f"{1e3 * slept.beyond:.1f} ms beyond its sleep")
        with console.status("before and after"):
            planned, reported = planning(folder / "planned", options.runs), reporting(folder / "report")
        console.print(f"Planning a run: {1e6 * planned:.0f} µs; the report: {reported:.1f} s.")
    if options.keep is not None:
        more = {"overhead": beside, "keeper": asdict(kept), "sleepers": asdict(slept), "cores": os.cpu_count()}
        more |= {"planning": planned, "reporting": reported}
        keep(options.keep, "cluster", device, [asdict(one) for one in rows], **more)


if __name__ == "__main__":
    main()
