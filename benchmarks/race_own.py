"""A user's own optimizer beside the default lanes of a race: how much a good one loses, and how much a bad one costs.

    python -m benchmarks.race_own --out race-own.json --prepare
    python -m benchmarks.race_own --out race-own.json --device cuda --jobs 12
    python -m benchmarks.race_own --out race-own.json --table
    python -m benchmarks.race_own --out race-own.json --keep results/races

The first command puts the tuned references of the benchmark's results into the file; it needs pandas. The second one
trains what is not in the file yet, at most once for each workload, seed and lane: a race whose own lane is the tuned
reference's optimizer, races whose own lanes are bad, and a race without an own lane. A run is stored as soon as it has
ended. The third command prints the scores. Where the benchmark's references were trained on other sources or in another
precision than the races are here, the reference is trained here, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from benchmarks.measuring import origin
from hotswap.bench.comparable import Circumstances, circumstances
from hotswap.bench.exchange import read_results
from hotswap.bench.methods import FIRST, METHODS, Configuration, Method
from hotswap.bench.methods.ours import Racing
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.plan import chosen, reporting_seeds
from hotswap.bench.runs import SETTLED, Result, Run
from hotswap.bench.scores import geometric_mean
from hotswap.bench.training import train
from hotswap.bench.workloads import WORKLOADS, Size
from hotswap.bench.workloads.text import fingerprint
from hotswap.errors import StudyError
from hotswap.files import write_text
from hotswap.store.shipped import BENCHMARK, shipped

TUNED, ALONE = "tuned_optimizer", "none"
BAD: Mapping[str, Mapping[str, Any]] = {
    "adamw_1e-5": {"optimizer": "adamw", "lr": 1e-5},
    "sgd_1e-3": {"optimizer": "sgd", "lr": 1e-3},
}
"""Own lanes that nobody should have brought."""

LANES = (TUNED, *BAD, ALONE)
"""The own lane of a race: the tuned reference's optimizer, a bad one, or none."""


class Job(NamedTuple):
    """One training."""

    workload: str
    seed: int
    lane: str
    """One of `LANES`, or `REFERENCE` for the tuned reference alone."""

    @property
    def name(self) -> str:
        return f"{self.workload}~{self.lane}~{self.seed}"


def own_optimizer(model: nn.Module, settings: Mapping[str, Any]) -> Optimizer:
    """The optimizer alone: a reference's warm-up and cosine are left out, since a race has a schedule of its own."""
    rest = {name: value for name, value in settings.items() if name not in ("optimizer", "warmup")}
    if settings["optimizer"] == "adamw":
        return AdamW(model.parameters(), **rest)
    momentum = {"momentum": 0.9, "nesterov": True} if "warmup" in settings else {}
    return SGD(model.parameters(), **momentum, **rest)


def race_beside(model: nn.Module, settings: Mapping[str, Any], steps: int) -> hotswap.Race:
    """`Race(model, own)`, with Muon's lanes beside on every device: the benchmark counts passes."""
    with patch("hotswap.race.validation.lanes", partial(hotswap.lanes, muon=True)):
        return hotswap.Race(model, own_optimizer(model, settings), total_steps=steps)


def trained(job: Job, reference: Mapping[str, Any], size: Size, device: str) -> dict[str, Any]:
    """Train once: what came of it, and who won."""
    torch.set_num_threads(1)
    if job.lane == REFERENCE:
        run = Run(job.workload, REFERENCE, reference["configuration"], job.seed, size)
        return {"result": train(run, device).plain()}
    settings = reference["settings"] if job.lane == TUNED else BAD.get(job.lane)
    races: list[hotswap.Race] = []

    class Beside(Method):
        """A race with an own lane."""

        title = f"Race, own lane {job.lane}"
        first = Configuration(dict(settings or {}), "the tuned reference's" if job.lane == TUNED else "a bad choice")

        def begin(self, task: Any, settings: Mapping[str, Any], seed: int) -> Racing:
            if settings:
                races.append(race_beside(task.model, settings, task.steps))
            else:
                races.append(hotswap.Race(task.model, hotswap.lanes(task.model, muon=True), total_steps=task.steps))
            return Racing(task, races[-1])

    method = f"race_own_{job.lane}"
    with patch.object(METHODS, "_known", {**METHODS, method: Beside}):
        result = train(Run(job.workload, method, FIRST, job.seed, size), device)
    return {"result": result.plain(), **(told(races[0]) if races else {})}


def told(race: hotswap.Race) -> dict[str, Any]:
    """Who won, and how the lanes did."""
    winner = race.winner
    return {
        "winner": None if winner is None else winner.name,
        "own_won": winner is not None and winner.own,
        "standings": [[one.name, one.rate, one.steps, one.loss, one.dropped_at, one.why] for one in race.standings()],
    }


def references(folder: Path) -> dict[str, Any]:
    """By workload: the configuration that the benchmark chose, what it reached by seed, and how that was trained."""
    results = {result.run.id: result for result in read_results(folder)}
    found = {}
    for workload in WORKLOADS:
        best = chosen(workload, results)
        if best is None:
            continue
        runs = [results.get(Run(workload, REFERENCE, best, seed).id) for seed in reporting_seeds(workload)]
        there = [run for run in runs if run is not None]
        found[workload] = {
            "configuration": best,
            "settings": dict(METHODS[REFERENCE]().configuration(best).settings),
            "ends": {str(run.run.seed): run.end.validation for run in there if run.end is not None},
            "circumstances": sorted({tuple(circumstances(workload, run.origin)) for run in there}),
        }
    return found


def comparable(workload: str, reference: Mapping[str, Any], device: str) -> bool:
    """Whether what is trained here can be compared with what the benchmark has of the reference."""
    text = fingerprint() if WORKLOADS[workload].reads_sources else ""
    trained_here = {"python": platform.python_version(), "device": "CPU" if device == "cpu" else device, "text": text}
    here = circumstances(workload, trained_here)
    return bool(reference["ends"]) and here.agree_with(Circumstances(*one) for one in reference["circumstances"])


def jobs(
    store: Mapping[str, Any], workloads: Sequence[str], seeds: Sequence[int], own: Sequence[str], device: str
) -> Iterator[Job]:
    """What is to be trained, the longest workloads as they come, each with all of these lanes."""
    for workload in workloads:
        lanes = own if comparable(workload, store["references"][workload], device) else (*own, REFERENCE)
        for seed in seeds or reporting_seeds(workload):
            for lane in lanes:
                job = Job(workload, seed, lane)
                if job.name not in store["runs"]:
                    yield job


def end_of(stored: Mapping[str, Any]) -> float:
    """The validation measure at the end; that of the untrained network where there is none, or a worse one."""
    result = Result.of(stored["result"])
    start = result.points[0].validation if result.points else math.nan
    return start if result.end is None else min(result.end.validation, start)


def table(store: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By workload: the score of each own lane, from the medians over its seeds, and how often the own lane won."""
    found: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for name, stored in store["runs"].items():
        workload, lane, _ = name.split("~")
        found.setdefault((workload, lane), []).append((end_of(stored), bool(stored.get("own_won"))))
    rows = []
    for workload in sorted({workload for workload, _ in found}):
        ends = {lane: median(end for end, _ in some) for (name, lane), some in found.items() if name == workload}
        own = store["references"][workload]["ends"]
        level = ends.get(REFERENCE, median(own.values()) if own else math.nan)
        row: dict[str, Any] = {"workload": workload, "seeds": min(len(found[workload, lane]) for lane in ends)}
        for lane in [lane for lane in (TUNED, *BAD) if lane in ends]:
            below = level if lane == TUNED else ends.get(ALONE, math.nan)
            row[lane] = ends[lane] / below if below else math.nan
            row[f"{lane} won"] = sum(won for _, won in found.get((workload, lane), []))
        rows.append(row)
    return rows


def keep(folder: Path, store: Mapping[str, Any]) -> None:
    """Write the table, with all versions, devices, dates and commands that its runs come from."""
    origins = [stored["origin"] for stored in store["runs"].values()]
    origin = {name: "; ".join(sorted({one[name] for one in origins})) for name in origins[0]}
    document = {"origin": origin, "rows": table(store)}
    write_text(folder / "own.json", json.dumps(document, indent=1) + "\n")


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as text, with the mean and the worst of each column."""
    lanes = [lane for lane in (TUNED, *BAD) if all(lane in row for row in rows)]
    heads = ["workload", "seeds", *(f"{'good' if lane == TUNED else 'bad'}: {lane}" for lane in lanes)]
    lines = [heads]
    for row in rows:
        scores = (f"{row[lane]:.3f} ({row[f'{lane} won']} won)" for lane in lanes)
        lines.append([row["workload"], str(row["seeds"]), *scores])
    for name, summed in (("mean", geometric_mean), ("worst", max)):
        kept = [[row[lane] for row in rows if not math.isnan(row[lane])] for lane in lanes]
        lines.append([name, "", *(f"{summed(values):.3f}" if values else "-" for values in kept)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)


def opened(path: Path, folder: Path | None, size: Size) -> dict[str, Any]:
    """What the file holds; a new one has the references of the benchmark's results."""
    if path.is_file():
        store: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if store.get("size") != size or "references" not in store:
            raise StudyError(f"{path} does not hold runs of size {size}; choose another file with --out.")
        return store
    found = references(folder or shipped(*BENCHMARK))
    if size == "smoke":
        found = {workload: {**reference, "ends": {}} for workload, reference in found.items()}  # they are of full size
    store = {"size": size, "references": found, "runs": {}}
    save(path, store)
    return store


def save(path: Path, store: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(store, indent=1) + "\n")


def run_all(path: Path, store: dict[str, Any], todo: Sequence[Job], device: str, count: int, seconds: float) -> None:
    """Train side by side; whatever has ended is in the file, should this process be killed."""
    began = time.perf_counter()
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        deadline = time.time() + seconds
        work = {}
        for job in todo:
            arguments = (job, store["references"][job.workload], store["size"], device)
            work[pool.submit(before, deadline, *arguments)] = job
        for number, future in enumerate(as_completed(work), 1):
            job, stored = work[future], future.result()
            if stored is None:
                continue
            result = stored["result"]
            if result["state"] in SETTLED:
                store["runs"][job.name] = {**stored, "origin": origin(torch.device(device))}
                save(path, store)
            said = result["reason"] or f"{end_of(stored):.4g}, winner {stored.get('winner', '-')}"
            at = time.perf_counter() - began
            print(f"[{number}/{len(todo)}, {at:.0f} s] {job.name}: {result['state']}, {said}", flush=True)


def before(deadline: float, job: Job, reference: Mapping[str, Any], size: Size, device: str) -> dict[str, Any] | None:
    """Train, unless it is too late."""
    return None if time.time() > deadline else trained(job, reference, size, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where runs are kept, as JSON")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only this one; may be repeated")
    parser.add_argument("--seed", action="append", type=int, help="only this one; the reported ones unless told")
    parser.add_argument("--lane", action="append", choices=LANES, help="only this own lane; may be repeated")
    parser.add_argument("--size", choices=["smoke", "full"], default="full")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument(
        "--stop-after", type=float, default=math.inf, metavar="SECONDS", help="begin no run after so long"
    )
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="of the benchmark; the shipped ones unless told")
    parser.add_argument("--prepare", action="store_true", help="only put the references into the file")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="only write the table there, as own.json")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes
    try:
        store = opened(options.out, options.results, options.size)
    except (StudyError, ImportError) as error:
        parser.error(f"{error} (A file with references is made by --prepare, where pandas is installed.)")
    wanted = options.workload or list(store["references"])
    if missing := [workload for workload in wanted if workload not in store["references"]]:
        parser.error(f"--workload {missing[0]}: the results have no tuned reference of it; train that first")
    if options.keep is not None:
        keep(options.keep, store)
    elif not options.table and not options.prepare:
        todo = list(jobs(store, wanted, options.seed or [], options.lane or LANES, options.device))
        run_all(options.out, store, todo, options.device, options.jobs, options.stop_after)
    if store["runs"]:
        print(shown(table(store)))


if __name__ == "__main__":
    main()
