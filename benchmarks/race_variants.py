"""Variants of a race on the benchmark's workloads, beside AdamW with tuned rates, all at the same cost.

    python -m benchmarks.race_variants --out variants.csv --workload paper_network --seed 0

Every row is one run: a workload, a seed, a method, the passes it took and its measures at the end. Rows that are there
already are not run again, so the command can be stopped and given again, and its tables merge by concatenation. What is
printed is each method's validation measure over that of the best AdamW of the same seed, as a geometric mean.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.optim import AdamW, Optimizer

import hotswap
from hotswap.arms import Arms
from hotswap.bench.workloads import WORKLOADS, Size, Task
from hotswap.races import ROUNDS, Schedule, race_steps

BASE: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}
"""AdamW as the races' design has measured it."""

RATES = hotswap.log_grid(3e-2, 1e-4, 6)

RACES: dict[str, dict[str, Any]] = {
    "race": {},
    "two_rounds": {"rounds": ((0.02, 3), (0.06, 1))},
    "short": {"rounds": ((0.006, 4), (0.015, 2), (0.05, 1))},
    "long": {"rounds": ((0.012, 4), (0.03, 3), (0.1, 2), (0.2, 1))},
    "fine": {"arms": {"lr": hotswap.log_grid(3e-2, 1e-4, 11)}, "rounds": ((0.012, 6), (0.03, 3), (0.1, 1))},
    "decays": {"arms": {"lr": RATES, "weight_decay": [0.1, 0.0]}, "rounds": ((0.012, 6), (0.03, 3), (0.1, 1))},
    "decay_02": {"decay": 0.2},
    "decay_06": {"decay": 0.6},
}
"""What is tried, beside the default."""

METHODS = (*(f"adamw_{rate:.2g}" for rate in RATES), *RACES)
FIELDS = ("workload", "size", "seed", "method", "passes", "budget", "train", "validation", "chosen", "seconds")


def steps_within(settings: dict[str, Any], budget: int) -> int:
    """The longest race that takes no more passes than the budget."""
    lanes = len(Arms.of(settings.get("arms", {"lr": RATES})))
    return race_steps(lanes, budget, settings.get("rounds", ROUNDS))


def make_race(model: nn.Module, steps: int, settings: dict[str, Any]) -> hotswap.Race:
    settings = {"arms": {"lr": RATES}, **settings}
    return hotswap.Race(AdamW(model.parameters(), **BASE), settings.pop("arms"), steps, module=model, **settings)


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
    steps = steps_within(settings, task.steps)
    optimizer = make_race(task.model, steps, settings)
    for batch in islice(task.minibatches(), steps):
        optimizer.step(lambda batch=batch: task.loss(batch))
    values = optimizer.winner or {}
    return optimizer.cost.passes, " ".join(f"{name}={value}" for name, value in values.items())


def run(workload: str, seed: int, method: str, size: Size, device: str) -> dict[str, Any]:
    task = WORKLOADS[workload]().task(seed, size, device)
    torch.manual_seed(seed)
    began = time.perf_counter()
    if method in RACES:
        passes, chosen = run_race(task, RACES[method])
    else:
        passes, chosen = run_plain(task, float(method.removeprefix("adamw_")))
    train, validation = task.measure()
    numbers = (passes, task.steps, train, validation, chosen, round(time.perf_counter() - began, 2))
    return dict(zip(FIELDS, (workload, size, seed, method, *numbers), strict=True))


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
    parser.add_argument("--size", choices=["smoke", "full"], default="full")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after so many")
    options = parser.parse_args()
    console, began = Console(), time.perf_counter()
    done = {(row["workload"], row["size"], row["seed"], row["method"]) for row in read(options.out)}
    wanted = [
        (workload, seed, method)
        for workload in options.workload or sorted(WORKLOADS)
        for seed in options.seed or [0]
        for method in options.method or METHODS
        if (workload, options.size, str(seed), method) not in done
    ]
    for workload, seed, method in track(wanted, description="training", console=console):
        if time.perf_counter() - began > 60 * options.minutes:
            break
        row = run(workload, seed, method, options.size, options.device)
        new = not options.out.exists()
        with options.out.open("a", newline="") as lines:
            writer = csv.DictWriter(lines, FIELDS)
            if new:
                writer.writeheader()
            writer.writerow(row)
    for line in summary(read(options.out)):
        console.print(*line)


if __name__ == "__main__":
    main()
