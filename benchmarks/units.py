"""How long a step of each unit of a study takes, and on a GPU of how many kernels it is made.

    python -m benchmarks.units extensions --batch-size 64 --batch-size 1024 --device cuda
    python -m benchmarks.units extensions --batch-size 256 --alone --device cuda

A unit is what trains together. `--alone` times each family of a unit by itself, too, and says how many times as long
all of them take one after another. Steps are timed from the first weights on, after some that warm up; early in
training, searches are a little longer than later. `ready` is the time that a unit's programs take to be compiled and
captured.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import describe, seconds
from hotswap.data import load
from hotswap.ensemble import Ensemble
from hotswap.studies import STUDIES, StudySpec, Unit, load_study, plan
from hotswap.studies.training import Held, RunOptions, assemble, set_up

WATCHED = 10  # steps whose kernels are counted


class Kernels(NamedTuple):
    """What a GPU did in one step."""

    count: float
    microseconds: float
    """Of all kernels together; those that ran at the same time count twice."""
    longest: list[tuple[str, float]]
    """Names, and microseconds per step, of those that took most of it."""


class UnitSpeed(NamedTuple):
    """What was measured of one unit."""

    unit: Unit
    ready: float
    step: float
    """Seconds of one step of all its runs."""
    epoch_steps: int
    trials: float
    """The mean over runs and steps."""
    kernels: Kernels | None


def measure(study: StudySpec, unit: Unit, held: Held, steps: int) -> UnitSpeed:
    device = held.tensors.train_x.device
    began = time.perf_counter()
    ensemble = assemble(study, unit, held).ensemble
    ensemble.ready()
    ensemble.wait()
    ready, epoch_steps = time.perf_counter() - began, ensemble.steps
    ensemble.steps = min(steps, epoch_steps)
    ensemble.train_epoch(0)
    taken = seconds(lambda: ensemble.train_epoch(1), device) / ensemble.steps
    tried = ensemble.tally().means.get("trials", [0.0])
    kernels = count_kernels(ensemble) if device.type == "cuda" else None
    return UnitSpeed(unit, ready, taken, epoch_steps, sum(tried) / len(tried), kernels)


def alone(study: StudySpec, unit: Unit, held: Held, steps: int) -> list[UnitSpeed]:
    """The families of a unit, each by itself."""
    runs = {name: tuple(run for run in unit.runs if run.algorithm == name) for name in unit.families}
    return [
        measure(study, replace(unit, algorithm=name, runs=of_family), held, steps) for name, of_family in runs.items()
    ]


def told(together: UnitSpeed, families: list[UnitSpeed]) -> str:
    """How long families take one after another, over all together."""
    step, ready = (sum(getattr(one, name) for one in families) for name in ("step", "ready"))
    return (
        f"{together.unit.id}: a step of {len(families)} families one after another takes {step / together.step:.2f} "
        f"times as long ({1e3 * step:.3f} ms), and they are ready after {ready:.1f} s, together {together.ready:.1f} s"
    )


def count_kernels(ensemble: Ensemble) -> Kernels:
    ensemble.steps = min(WATCHED, ensemble.steps)
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        ensemble.train_epoch(2)
        ensemble.wait()
    events = sorted(watched.key_averages(), key=lambda event: -event.self_device_time_total)
    longest = [(event.key, event.self_device_time_total / ensemble.steps) for event in events[:8]]
    total = sum(event.self_device_time_total for event in events)
    return Kernels(sum(event.count for event in events) / ensemble.steps, total / ensemble.steps, longest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help=f"one of {', '.join(STUDIES)}, or a TOML file")
    parser.add_argument("--batch-size", type=int, action="append", help="only these; all by default")
    parser.add_argument("--algorithm", action="append", help="only these; all by default")
    parser.add_argument("--steps", type=int, default=150, help="how many are timed, at most an epoch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--alone", action="store_true", help="time families that are trained as one by themselves, too")
    parser.add_argument("--kernels", action="store_true", help="list the kernels that take most of the time, too")
    options = parser.parse_args()
    study = STUDIES[options.study] if options.study in STUDIES else load_study(options.study)
    study = study.select(batch_sizes=options.batch_size, algorithms=options.algorithm)
    precision = "tf32" if options.device.startswith("cuda") else "fp32"
    held = set_up(study, load(study.dataset), RunOptions(device=options.device, precision=precision))
    console = Console()
    table = Table(title=describe(torch.device(options.device)))
    for heading in (
        "unit",
        "runs",
        "ready, s",
        "ms per step",
        "run-epochs per s",
        "trials",
        "kernels",
        "their time, µs",
    ):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for unit in plan(study):
        with console.status(f"{unit.id} ..."):
            speed = measure(study, unit, held, options.steps)
        kernels = ("", "") if speed.kernels is None else (f"{n:.0f}" for n in speed.kernels[:2])
        rate = len(unit.runs) / (speed.step * speed.epoch_steps)
        numbers = (f"{speed.ready:.1f}", f"{1e3 * speed.step:.3f}", f"{rate:.1f}", f"{speed.trials:.2f}")
        table.add_row(unit.id, str(len(unit.runs)), *numbers, *kernels)
        if options.kernels and speed.kernels is not None:
            for name, microseconds in speed.kernels.longest:
                console.print(f"{unit.id}: {microseconds:7.1f} µs  {name[:90]}", highlight=False)
        if options.alone and len(unit.families) > 1:
            with console.status(f"families of {unit.id} ..."):
                console.print(told(speed, alone(study, unit, held, options.steps)), highlight=False, soft_wrap=True)
    console.print(table)


if __name__ == "__main__":
    main()
