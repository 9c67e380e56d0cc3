"""What a study on Ray costs beside the same units in turn: `python -m benchmarks.cluster --keep results/benchmarks`.

- The overhead of a unit: how long units take that do nothing, one after the other on one worker.
- The folder: rows per second that the command stores of finished units on this disk, how large they are then, and how
  long it takes to read them back as a table.
- Efficiency: a study of eight equal units on 1, 2 and 4 workers of one core beside the same units in turn in this
  process, with one thread, too. The first time, workers have to start; the second time they are there.
- Sleepers: units that only sleep and record one row, to see what the scheduler and the folder can carry.
- Before and after: how long it takes to plan a study of many runs and to enter them in a folder, and how long the
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from benchmarks.measuring import describe, keep
from hotswap.data import load_digits
from hotswap.studies import NetworkSpec, SgdFamily, StudySpec, plan
from hotswap.studies import Unit as Planned
from hotswap.studies.folder import Store
from hotswap.studies.run import run_study
from hotswap.studies.training import RunOptions
from hotswap.work import PerUnit, Setting, Unit, do_all
from hotswap.work.on_ray import Cluster, OnRay, join

RATES = tuple(10 ** -(i / 100) for i in range(100))


@dataclass(frozen=True)
class Kept:
    """What the folder took: rows a second, bytes a row, seconds to read a million rows."""

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


class Keeper:
    """Stores what units give back, if there is a folder, and looks at the clock."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.ended: list[float] = []

    def holding(self, unit: Unit) -> AbstractContextManager[object]:
        return nullcontext() if self.store is None else self.store.units.holding(unit.name)

    def begins(self, unit: Unit) -> bool:
        return True

    def look(self, names: Iterable[str]) -> None:
        pass

    def done(self, unit: Unit, result: Any) -> None:
        self.ended.append(time.perf_counter())
        if self.store is not None:
            self.store.finish(result)

    def stopped(self, unit: Unit) -> None:
        raise RuntimeError(f"{unit.name} has stopped.")

    def failed(self, unit: Unit, error: Exception) -> None:
        raise error

    def say(self, text: str) -> None:
        print(text)


@contextmanager
def started(workers: int) -> Iterator[Cluster]:
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


def sleeping() -> Callable[..., Any]:
    """Sleeps, and gives back what it was given; a function in a function, since workers cannot import benchmarks."""

    def sleep(shared: Any, payload: Any, stopping: Any) -> Any:
        seconds, result = payload
        time.sleep(seconds)
        return result

    return sleep


def measured(study: StudySpec, unit: Planned, epochs: int) -> dict[str, Any]:
    """What a finished unit would store."""
    values = [math.sqrt(2 + i) for i in range(6)]  # with all their digits, as measured ones have
    rows = [[epoch, *values, epoch, math.sqrt(epoch), {}] for epoch in range(1, epochs + 1)]
    runs = {
        run.id: {
            "algorithm": run.algorithm,
            "batch_size": run.batch_size,
            "seed": run.seed,
            "settings": run.settings,
            "diverged": None,
            "rows": rows,
            "arms": [],
        }
        for run in unit.runs
    }
    identity = {"fingerprint": study.fingerprint(), "fingerprint_version": 1, "precision": "fp32", "dtype": "float32"}
    more = {"epochs": epochs, "seconds": 1.0, "provenance": {"seconds": 1.0}, "runs": runs}
    return {"unit": unit.id, "study": study.to_dict(), **identity, **more}


def overhead(cluster: Cluster, units: int) -> float:
    """Seconds from one unit's end to the next one's, the median."""
    keeper = Keeper()
    do_all([Unit(str(n), (0.0, n)) for n in range(units + 2)], OnRay(Setting(sleeping()), cluster), keeper)
    return median(after - before for before, after in zip(keeper.ended[1:], keeper.ended[2:], strict=False))


def warm_up(cluster: Cluster) -> None:
    """Have all workers started."""
    do_all([Unit(str(n), (0.5, n)) for n in range(cluster.room())], OnRay(Setting(sleeping()), cluster), Keeper())


def stored(folder: Path, epochs: int, units: int = 4, runs: int = 100) -> Kept:
    study = study_of(units, runs, epochs)
    store = Store.create(folder, study, precision="fp32", max_runs=runs)
    store.metrics()  # imports what reading needs
    contents = [measured(study, unit, epochs) for unit in plan(study, runs)]
    began = time.perf_counter()
    for content in contents:
        store.finish(content)
    taken = time.perf_counter() - began
    began = time.perf_counter()
    rows = len(Store.open(folder).metrics())
    read = time.perf_counter() - began
    size = sum(file.stat().st_size for file in (folder / "units").iterdir())
    return Kept(rows, rows / taken, size / rows, 1e6 * read / rows)


def efficiency(workers: int, folder: Path, in_turn: float, epochs: int) -> Efficiency:
    with started(workers) as cluster:
        first, again = (trained(folder / f"{workers}-{turn}", epochs, cluster) for turn in (1, 2))
    return Efficiency(workers, in_turn, first, again)


def trained(folder: Path, epochs: int, cluster: Cluster | None = None) -> float:
    """Seconds that eight units take, in turn in this process or on a cluster."""
    study, options = study_of(8, 20, epochs), RunOptions(max_runs=20)
    store = Store.create(folder, study, precision="fp32", max_runs=20)
    elsewhere = None if cluster is None else lambda setting: OnRay(setting, cluster)
    began = time.perf_counter()
    run_study(store, study, load_digits(), options, Quiet(), elsewhere=elsewhere)
    return time.perf_counter() - began


def sleepers(cluster: Cluster, folder: Path, units: int, sleep: float) -> Sleepers:
    study = study_of(units, 1, 1)
    store = Store.create(folder, study, precision="fp32", max_runs=1)
    planned = [Unit(unit.id, (sleep, measured(study, unit, 1))) for unit in plan(study, 1)]
    warm_up(cluster)
    began = time.perf_counter()
    outcome = do_all(planned, OnRay(Setting(sleeping()), cluster), Keeper(store))
    taken = time.perf_counter() - began
    if outcome.finished != units:
        raise RuntimeError(f"{units - outcome.finished} units are missing.")
    return Sleepers(units, sleep, cluster.room(), taken)


def planning(folder: Path, runs: int) -> float:
    """Seconds a run, from the specification to a folder that knows all of them."""
    study = study_of(runs // 100, 100, 1)
    began = time.perf_counter()
    Store.create(folder, study, precision="fp32", max_runs=100)
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
    parser.add_argument("--rows", type=int, default=200_000, help="rows that the folder takes")
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
        with console.status("rows"):
            kept = stored(folder / "rows", max(1, options.rows // 400))
        console.print(kept)
        with console.status("in turn"):
            in_turn = trained(folder / "in turn", options.epochs)
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
        more = {"overhead": beside, "folder": asdict(kept), "sleepers": asdict(slept), "cores": os.cpu_count()}
        more |= {"planning": planned, "reporting": reported}
        keep(options.keep, "cluster", device, [asdict(one) for one in rows], **more)


if __name__ == "__main__":
    main()
