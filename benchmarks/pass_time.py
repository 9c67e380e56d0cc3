"""How long a pass of each method takes beside one of AdamW: the benchmark counts passes, and people wait for seconds.

    python -m benchmarks.pass_time                            # all methods, on the workloads that the device trained
    python -m benchmarks.pass_time --workload paper_network   # on one workload; some two minutes

A method and AdamW train the same network on the same minibatches and take turns, a fraction of a second each, from
their first steps on. A ratio is the seconds that the method took for its forward-and-backward passes, over those that
AdamW took for as many. What a method does beside them is in it, and so is what a forward alone takes if that is not
the third of a pass that the benchmark counts it as. With few turns, or beside other work, ratios are noise: run it
twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from benchmarks.measuring import asked_for, describe, keep, seconds, side_by_side
from hotswap.bench.methods import FIRST, METHODS, SECOND, Training
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.workloads import WORKLOADS, Size, Task
from hotswap.ensemble.engine import full_float32

BESIDE = "adamw"
TURN, MOST = 0.3, 200
"""Seconds that a turn should take, though it is a step at least, and the most passes that it has."""
BUDGET = 100_000
"""Passes that a method is told it has: more than all turns together take."""


def task_of(workload: str, size: Size, device: torch.device) -> Task:
    """The workload's, with a budget that does not end."""
    return replace(WORKLOADS[workload]().task(seed=0, size=size, device=device), steps=BUDGET)


def begun(task: Task, workload: str, method: str) -> Training:
    """The method, set out on the task."""
    torch.manual_seed(0)  # dropout's
    way = METHODS[method]()
    return way.begin(task, way.configuration(configured(method, workload)).settings, seed=0)


class Going:
    """A run that goes on, a few passes at a time, and knows how many it has had."""

    def __init__(self, workload: str, method: str, size: Size, device: torch.device) -> None:
        task = task_of(workload, size, device)
        self.batches, self.training = task.minibatches(), begun(task, workload, method)

    def on(self, passes: int) -> None:
        """Train until so many passes more are spent."""
        due = self.training.cost + passes
        while self.training.cost < due:
            self.training.step(next(self.batches))


def configured(method: str, workload: str) -> str:
    """The first configuration, or the second where that is advice for this kind of workload."""
    second = METHODS[method].second
    advised = second is not None and second.kind is not None and METHODS[method].has_second(WORKLOADS[workload])
    return SECOND if advised else FIRST


def ratio(
    workload: str, method: str, device: torch.device, rounds: int, size: Size = "full", turn: float = TURN
) -> tuple[float, float]:
    """The seconds of a pass of the method over one of AdamW's, and the seconds of the latter."""
    runs = {"beside": Going(workload, BESIDE, size, device), "method": Going(workload, method, size, device)}
    for run in runs.values():
        run.on(2)  # what is done once, in a first step, is not what a pass takes
    one = seconds(lambda: runs["beside"].on(1), device)
    passes = max(1, min(MOST, round(turn / one)))
    before = {name: run.training.cost for name, run in runs.items()}
    taken = side_by_side({name: lambda run=run: run.on(passes) for name, run in runs.items()}, device, rounds)
    each = {name: rounds * taken[name] / (run.training.cost - before[name]) for name, run in runs.items()}
    return each["method"] / each["beside"], each["beside"]


def methods() -> list[str]:
    """All whose packages are there; the tuned reference is AdamW or SGD itself."""
    return [name for name, method in METHODS.items() if name not in (BESIDE, REFERENCE) and not method.missing()]


def trained_on(device: torch.device) -> list[str]:
    """The workloads whose results come from this kind of device: a CPU is too slow for two of them."""
    return [name for name, kind in WORKLOADS.items() if (device.type == "cuda") == kind.bfloat16_on_gpu]


def measure(workload: str, names: Sequence[str], device: torch.device, rounds: int, console: Console) -> dict[str, Any]:
    """The ratios of these methods on a workload; None of one that raises an error there."""
    ratios: dict[str, float | None] = {}
    beside: list[float] = []
    for name in names:
        with console.status(f"{device}: {workload}, {name}"):
            try:
                ratios[name], one = ratio(workload, name, device, rounds)
                beside.append(one)
            except Exception as error:  # of any package: the others go on
                ratios[name] = None
                console.print(f"{workload}, {name}: {type(error).__name__}: {error}", soft_wrap=True)
    plain = median(beside) if beside else None
    told = ", ".join(f"{name} {value:.2f}" for name, value in ratios.items() if value is not None)
    if plain is not None:
        console.print(f"{workload}: AdamW {1e3 * plain:.2f} ms a pass; over that, {told}", soft_wrap=True)
    return {"workload": workload, "adamw": plain, "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each, 15 unless told")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; all there are by default")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: give at least 1")
    console = Console()
    for device in asked_for(parser, options.device):
        console.print(describe(device), soft_wrap=True)
        rows: list[dict[str, Any]] = []
        for workload in options.workload or trained_on(device):
            with full_float32():
                rows.append(measure(workload, methods(), device, options.rounds, console))
            if options.keep is not None:
                keep(options.keep, "pass-time", device, rows, rounds=options.rounds)


if __name__ == "__main__":
    main()
