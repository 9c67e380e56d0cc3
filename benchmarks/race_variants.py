"""Variants of a race on the benchmark's workloads, beside AdamW with tuned rates, all at the same cost.

    python -m benchmarks.race_variants --out variants.csv --size small --seed 0 --seed 1
    python -m benchmarks.race_variants --out variants.csv --workload paper_network --device cuda --jobs 4

Every row is one run: a workload, a seed, a method, the passes it took and its measures at the end. Rows that are there
already are not run again, so the command can be stopped and given again, and its tables merge by concatenation. What is
printed is each method's validation measure over that of the best AdamW of the same seed, as a geometric mean.
Variants that `hotswap.Race` has settings for are races; the others are contests, see `benchmarks.contests`.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from benchmarks.contests import LEAST, Contest, close, fitted
from benchmarks.small_tasks import SMALL
from hotswap.arms import Arms
from hotswap.bench.workloads import WORKLOADS, Task
from hotswap.races import ROUNDS, Schedule, race_passes

BASE: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1, "fused": True}
"""AdamW as the races' design has measured it, in its fastest form."""

RATES = hotswap.log_grid(3e-2, 1e-4, 6)


def _adamw(parameters: list[nn.Parameter]) -> Optimizer:
    return AdamW(parameters, **BASE)


def _sgd(parameters: list[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)


TWO_BASES = {"bases": (_adamw, _sgd), "arms": [{"lr": RATES}, {"lr": (1.0, 0.3, 0.1)}]}

RACES: dict[str, dict[str, Any]] = {
    "race": {},
    "two_rounds": {"rounds": ((0.02, 3), (0.06, 1))},
    "short": {"rounds": ((0.006, 4), (0.015, 2), (0.05, 1))},
    "long": {"rounds": ((0.012, 4), (0.03, 3), (0.1, 2), (0.2, 1))},
    "fine": {"arms": {"lr": hotswap.log_grid(3e-2, 1e-4, 11)}, "rounds": ((0.012, 6), (0.03, 3), (0.1, 1))},
    "decays": {"arms": {"lr": RATES, "weight_decay": [0.1, 0.0]}, "rounds": ((0.012, 6), (0.03, 3), (0.1, 1))},
    "decay_02": {"decay": 0.2},
    "decay_06": {"decay": 0.6},
    "bases": {**TWO_BASES, "rounds": ((0.012, 5), (0.03, 2), (0.1, 1))},
    "bases_4": TWO_BASES,
}
"""What is tried, beside the default, with settings that a race has."""


_contest = partial(Contest, (_adamw,), tuple((0, rate) for rate in RATES))
HALF = (RATES[0] / RATES[1]) ** 0.5
"""Half of a step of the grid, as a factor."""

CONTESTS: dict[str, Contest] = {
    "finer": _contest(rounds=((0.012, 3), (0.03, 1), (0.1, 1)), split=(HALF, 1.0, 1 / HALF)),
    "finer_of_two": _contest(rounds=((0.012, 4), (0.03, 2), (0.1, 1)), split=(HALF, 1.0)),
    "upward": _contest(rounds=((0.012, 3), (0.03, 1), (0.1, 1)), split=(HALF * HALF, HALF, 1.0)),
    "fitted": _contest(rank=fitted),
    "close_02": _contest(rank=close(0.02)),
    "close_05": _contest(rank=close(0.05)),
    "nudged": _contest(nudge=HALF),
}
"""What is tried that a race has no settings for."""

METHODS = (*(f"adamw_{rate:.2g}" for rate in RATES), *RACES, *CONTESTS)
SIZES = ("small", "smoke", "full")
FIELDS = ("workload", "size", "seed", "method", "passes", "budget", "train", "validation", "chosen", "seconds")


def cost_of(settings: dict[str, Any], steps: int) -> int:
    """The passes of a race of so many steps."""
    lanes = sum(len(Arms.of(part)) for part in _arms_of(settings))
    return race_passes(lanes, steps, settings.get("rounds", ROUNDS), LEAST)


def steps_within(cost: Callable[[int], int], budget: int) -> int:
    """The longest race that takes no more passes than the budget."""
    return next(steps for steps in range(budget, 0, -1) if cost(steps) <= budget)


def make_race(model: nn.Module, steps: int, settings: dict[str, Any]) -> hotswap.Race:
    bases = [make(list(model.parameters())) for make in settings.get("bases", (_adamw,))]
    others = {name: value for name, value in settings.items() if name not in ("bases", "arms")}
    return hotswap.Race(bases, _arms_of(settings), steps, module=model, **others)


def _arms_of(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The lanes of each base."""
    arms = settings.get("arms", {"lr": RATES})
    return arms if isinstance(arms, list) else [arms]


def run_plain(task: Task, rate: float) -> tuple[int, str]:
    """AdamW with the schedule of a race, so that only the choice of the rate differs."""
    optimizer, schedule = AdamW(task.model.parameters(), **BASE), Schedule(task.steps)
    for step, batch in enumerate(islice(task.minibatches(), task.steps)):
        optimizer.param_groups[0]["lr"] = rate * schedule.factor(step)
        _step(optimizer, lambda batch=batch: task.loss(batch))
    return task.steps, f"{rate:g}"


def _step(optimizer: Optimizer, loss: Callable[[], torch.Tensor]) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def run_race(task: Task, settings: dict[str, Any]) -> tuple[int, str]:
    steps = steps_within(partial(cost_of, settings), task.steps)
    optimizer = make_race(task.model, steps, settings)
    for batch in islice(task.minibatches(), steps):
        optimizer.step(lambda batch=batch: task.loss(batch))
    values = optimizer.winner or {}
    base = [f"base={type(optimizer.base).__name__}"] if "bases" in settings else []
    return optimizer.cost.passes, " ".join([*base, *(f"{name}={value}" for name, value in values.items())])


def run(workload: str, seed: int, method: str, size: str, device: str) -> dict[str, Any]:
    """One run, from nothing to a row."""
    torch.set_num_threads(1)  # several processes share the machine, and small products gain nothing from more
    task = SMALL[workload](seed, device) if size == "small" else WORKLOADS[workload]().task(seed, size, device)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    began = time.perf_counter()
    if method in RACES:
        passes, chosen = run_race(task, RACES[method])
    elif method in CONTESTS:
        contest = CONTESTS[method]
        passes, chosen = contest.run(task, steps_within(contest.cost, task.steps))
    else:
        passes, chosen = run_plain(task, float(method.removeprefix("adamw_")))
    train, validation = task.measure()
    numbers = (passes, task.steps, train, validation, chosen, round(time.perf_counter() - began, 2))
    return dict(zip(FIELDS, (workload, size, seed, method, *numbers), strict=True))


def run_all(wanted: list[tuple[str, int, str]], size: str, device: str, jobs: int) -> Iterator[dict[str, Any]]:
    """The rows of runs as they end, of so many processes at a time."""
    if jobs == 1:
        yield from (run(*one, size, device) for one in wanted)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(run, *one, size, device) for one in wanted]
        try:
            for one in as_completed(runs):
                yield one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def read(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def summary(rows: list[dict[str, str]]) -> list[tuple[str, str, str, str]]:
    """Of each method: the geometric mean of its measures over those of the best AdamW, and the worst of them."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["method"].startswith("adamw_"):
            key = (row["workload"], row["seed"])
            best[key] = min(best.get(key, math.inf), float(row["validation"]))
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        some = [row for row in rows if row["method"] == method and (row["workload"], row["seed"]) in best]
        ratios = {
            (row["workload"], row["seed"]): float(row["validation"]) / best[row["workload"], row["seed"]]
            for row in some
            if math.isfinite(float(row["validation"]))
        }
        if ratios:
            worst = max(ratios, key=ratios.__getitem__)
            mean = statistics.geometric_mean(ratios.values())
            found.append((method, f"{mean:.3f}", f"{ratios[worst]:.3f} ({worst[0]})", f"{len(ratios)} of {len(some)}"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a table, which grows")
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS), help="only these; all by default")
    parser.add_argument("--seed", action="append", type=int, help="only these; 0 by default")
    parser.add_argument("--method", action="append", choices=METHODS, help="only these; all by default")
    parser.add_argument("--size", choices=SIZES, default="full", help="small: seconds a run on one core")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, each with one thread")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after the run that ends after so many")
    options = parser.parse_args()
    console, began = Console(), time.perf_counter()
    known = sorted(SMALL if options.size == "small" else WORKLOADS)
    done = {(row["workload"], row["size"], row["seed"], row["method"]) for row in read(options.out)}
    wanted = [
        (workload, seed, method)
        for seed in options.seed or [0]
        for workload in options.workload or known
        for method in options.method or METHODS
        if workload in known and (workload, options.size, str(seed), method) not in done
    ]
    rows = run_all(wanted, options.size, options.device, options.jobs)
    for row in track(rows, description="training", console=console, total=len(wanted)):
        new = not options.out.exists()
        with options.out.open("a", newline="") as lines:
            writer = csv.DictWriter(lines, FIELDS)
            if new:
                writer.writeheader()
            writer.writerow(row)
        if time.perf_counter() - began > 60 * options.minutes:
            rows.close()
            break
    for line in summary(read(options.out)):
        console.print(*line)


if __name__ == "__main__":
    main()
