"""Loss curves of optimizers that train alone, from which races between them are replayed.

    python -m benchmarks.lane_curves --out curves.npz --problem choosing --lane muon:2e-2 --lane adamw:3e-3 --seed 0
    python -m benchmarks.lane_curves --out full.npz --workload autoencoder --lane muon:6e-3 --device cuda --jobs 8
    python -m benchmarks.lane_curves --out curves.npz --problem all --references --seed 0 --seed 1 --seed 2 --jobs 16

A lane is `optimizer:rate[:schedule][:option=value]...`. Optimizers: muon, adamw, sgd (momentum 0.9, Nesterov).
Schedules: `linear` (the default; warm-up of 2 % of the steps but at most 50, then decay to zero), `cosine` (warm-up of
5 %), `constant`. Options: `warmup=` (steps from 1, a share below 1), `start=` (share of the run at which the decay
begins), and of the optimizer: `wd=`, `beta1=`, `beta2=`, `momentum=` (by default its own).

`--references` trains eight tuned runs of AdamW and SGD with seed 100, and the best of them with the seeds asked for.
A lane sees minibatches of its own, as in a race of turns, from the same first weights; `--shared` gives the same ones
to all. Every run that is done is a file in the folder OUT.runs (`--runs`), and OUT is all of them, written twice a
minute. A run that is in either is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.race_problems import PROBLEMS
from hotswap.bench.workloads import WORKLOADS
from hotswap.bench.workloads.base import Task
from hotswap.race.muon import Muon

__all__ = ["REFERENCES", "REFERENCE_SEED", "Curve", "Lane", "read", "tuned"]

REFERENCES = (
    *(f"adamw:{rate}:cosine" for rate in ("3e-4", "1e-3", "3e-3", "1e-2")),
    *(f"sgd:{rate}:cosine" for rate in ("0.01", "0.03", "0.1", "0.3")),
)
REFERENCE_SEED = 100
PERCENTS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 50, 70, 85, 100)
"""Where the model is measured."""

OPTIONS = ("warmup", "start", "wd", "beta1", "beta2", "momentum")


class Key(NamedTuple):
    """A run."""

    problem: str
    lane: str
    seed: int

    @property
    def name(self) -> str:
        return "|".join(map(str, self))

    @property
    def file(self) -> str:
        return self.name.replace("|", "__").replace(":", "_") + ".npz"


@dataclass(frozen=True)
class Lane:
    """An optimizer with a rate and a schedule."""

    optimizer: str
    rate: float
    schedule: str = "linear"
    options: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Lane:
        """Parse `muon:2e-2:linear:start=0.2`; raises ValueError."""
        optimizer, rate, *rest = text.split(":")
        schedules = [part for part in rest if "=" not in part] or ["linear"]
        pairs = (part.split("=") for part in rest if "=" in part)
        lane = cls(optimizer, float(rate), schedules[0], {name: float(value) for name, value in pairs})
        known = optimizer in ("muon", "adamw", "sgd") and lane.schedule in ("linear", "cosine", "constant")
        if not known or len(schedules) > 1 or not set(lane.options) <= set(OPTIONS):
            raise ValueError(f"{text}: a lane is muon|adamw|sgd:rate[:linear|cosine|constant][:option=value]...")
        return lane

    def make(self, model: nn.Module) -> Optimizer:
        of = self.options.get
        if self.optimizer == "sgd":
            momentum = of("momentum", 0.9)
            return SGD(model.parameters(), self.rate, momentum, weight_decay=of("wd", 0.0), nesterov=momentum > 0)
        if self.optimizer == "adamw":
            betas = of("beta1", 0.9), of("beta2", 0.999)
            return AdamW(model.parameters(), self.rate, betas, weight_decay=of("wd", 0.01), fused=True)
        names = {"wd": "weight_decay", "momentum": "momentum"}
        given: dict[str, Any] = {names[name]: value for name, value in self.options.items() if name in names}
        if {"beta1", "beta2"} & set(self.options):
            given["betas"] = of("beta1", 0.9), of("beta2", 0.95)
        return Muon(model, lr=self.rate, **given)

    def warmup(self, steps: int) -> float:
        """The steps in which the rate rises."""
        given = self.options.get("warmup")
        if given is None:
            return 0.05 * steps if self.schedule == "cosine" else min(50.0, 0.02 * steps)
        return given if given >= 1 else given * steps

    def factor(self, step: int, steps: int) -> float:
        """What the rate is multiplied by at a step."""
        warmup = self.warmup(steps)
        rise = min(1.0, (step + 1) / max(1.0, warmup))
        start = self.options.get("start", 0.0) * steps
        if self.schedule == "constant":
            return rise
        if self.schedule == "cosine":
            start = max(start, warmup)
            return rise * (1 + math.cos(math.pi * max(0.0, step - start) / max(1.0, steps - start))) / 2
        return rise * min(1.0, (steps - step) / max(1.0, steps - start))


@dataclass(frozen=True)
class Curve:
    """A run: the training loss of every step, and measures at `percents` of the steps (infinite where it diverged)."""

    losses: NDArray[np.float32]
    percents: NDArray[np.int64]
    train: NDArray[np.float64]
    validation: NDArray[np.float64]
    seconds: float

    @property
    def end(self) -> float:
        """The validation measure at the end."""
        return float(self.validation[-1])


def _make_task(problem: str, seed: int, device: str) -> Task:
    return PROBLEMS[problem](seed, device) if problem in PROBLEMS else WORKLOADS[problem]().task(seed, "full", device)


def train(key: Key, device: str, *, shared: bool = False, steps: int | None = None) -> Curve:
    """Train the lane alone; `steps` shortens the run."""
    task, lane = _make_task(key.problem, key.seed, device), Lane.of(key.lane)
    steps = steps or task.steps
    own = 0 if shared else crc32(key.lane.encode())
    torch.manual_seed(key.seed + own)
    optimizer = lane.make(task.model)
    schedule = LambdaLR(optimizer, lambda step: lane.factor(step, steps))
    points = {max(1, round(percent / 100 * steps)) for percent in PERCENTS}
    losses, found, began = torch.full((steps,), math.inf, device=device), [], time.perf_counter()
    skipped = own % 500
    for step, batch in enumerate(islice(task.minibatches(), skipped, skipped + steps), 1):
        optimizer.zero_grad()
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses[step - 1] = loss.detach()
        if step in points:
            found.append((round(100 * step / steps), *task.measure()))
            if not math.isfinite(found[-1][-1]) or not torch.isfinite(loss):
                break
    return _curve(losses, found, time.perf_counter() - began)


def _curve(losses: torch.Tensor, found: list[tuple[int, float, float]], seconds: float) -> Curve:
    if len(found) == 0 or found[-1][0] < 100:
        found = [*found, (100, math.inf, math.inf)]
    table = np.nan_to_num(np.array(found, np.float64), nan=math.inf, posinf=math.inf)
    values = np.nan_to_num(losses.float().cpu().numpy(), nan=math.inf, posinf=math.inf)
    return Curve(values, table[:, 0].astype(np.int64), table[:, 1], table[:, 2], seconds)


def _write(file: Path, arrays: dict[str, Any]) -> None:
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished.npz")
    np.savez_compressed(unfinished, **arrays)
    unfinished.replace(file)


def _run(key: Key, folder: Path, device: str, shared: bool) -> tuple[Key, float, float]:
    torch.set_num_threads(1)
    curve = train(key, device, shared=shared)
    _write(folder / key.file, {"key": key.name, **asdict(curve)})
    return key, curve.end, curve.seconds


def read(path: Path) -> dict[Key, Curve]:
    """The runs in a file, or in the folder of a command that is not done."""
    if not path.exists():
        return {}
    if path.is_dir():
        files = [file for file in sorted(path.glob("*.npz")) if ".unfinished" not in file.name]
        return {key: curve for file in files for key, curve in read(file).items()}
    with np.load(path) as file:
        if "key" in file:
            return {_key(str(file["key"])): _unpacked({name: file[name] for name in file if name != "key"})}
        values = {name: file[name] for name in file}
    names = json.loads(str(values["names"]))
    return {
        _key(name): _unpacked({part: values[f"{number}.{part}"] for part in Curve.__dataclass_fields__})
        for number, name in enumerate(names)
    }


def _key(name: str) -> Key:
    problem, lane, seed = name.split("|")
    return Key(problem, lane, int(seed))


def _unpacked(values: dict[str, Any]) -> Curve:
    return Curve(**(values | {"seconds": float(values["seconds"])}))


def _merge(curves: dict[Key, Curve], out: Path) -> None:
    parts = {f"{i}.{name}": value for i, curve in enumerate(curves.values()) for name, value in asdict(curve).items()}
    _write(out, {"names": json.dumps([key.name for key in curves]), **parts})


def tuned(curves: dict[Key, Curve], problem: str) -> str | None:
    """The best of the references by the validation measure at its own seed, once all of them are there."""
    keys = [Key(problem, lane, REFERENCE_SEED) for lane in REFERENCES]
    if not all(key in curves for key in keys):
        return None
    return min(keys, key=lambda key: curves[key].end).lane


class Session:
    """Runs in several processes, and their files."""

    def __init__(self, out: Path, runs: Path, device: str, jobs: int, seconds: float, shared: bool) -> None:
        self.out, self.runs, self.device, self.jobs, self.shared = out, runs, device, jobs, shared
        self.until = time.monotonic() + seconds
        self.curves = read(out) | read(runs)
        self.merged = time.monotonic()

    def run(self, keys: Iterable[Key]) -> None:
        """Run what is not there yet, as long as there is time."""
        waiting = iter([key for key in dict.fromkeys(keys) if key not in self.curves])
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(_run, key, self.runs, self.device, self.shared): key for key in self._next(waiting)}
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    self._done(running.pop(done), done)
                    for key in islice(waiting, 1 if time.monotonic() < self.until else 0):
                        running[pool.submit(_run, key, self.runs, self.device, self.shared)] = key
        _merge(self.curves, self.out)

    def _next(self, waiting: Iterator[Key]) -> list[Key]:
        return list(islice(waiting, self.jobs if time.monotonic() < self.until else 0))

    def _done(self, key: Key, done: Any) -> None:
        if error := done.exception():
            print(f"FAILED {key.name}: {error!r}", flush=True)
            return
        self.curves |= read(self.runs / key.file)
        _, end, seconds = done.result()
        print(
            f"{len(self.curves):5} {key.problem:22} {key.lane:28} {key.seed:3} {end:10.4g} {seconds:7.1f} s", flush=True
        )
        if time.monotonic() > self.merged + 30:
            _merge(self.curves, self.out)
            self.merged = time.monotonic()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="the folder of single runs; by default beside OUT")
    parser.add_argument("--problem", action="append", default=[], help="its name, choosing, confirming, or all")
    parser.add_argument("--workload", action="append", default=[], choices=sorted(WORKLOADS))
    parser.add_argument("--lane", action="append", default=[])
    parser.add_argument("--references", action="store_true")
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no run after so many")
    parser.add_argument("--shared", action="store_true", help="the same minibatches for all lanes")
    asked = parser.parse_args(arguments)
    unknown = set(asked.problem) - set(PROBLEMS) - {"all", "choosing", "confirming"}
    if unknown:
        parser.error(f"--problem {' '.join(sorted(unknown))}: choose from {', '.join(PROBLEMS)}")
    for lane in asked.lane:
        try:
            Lane.of(lane)
        except ValueError as error:
            parser.error(str(error))
    return asked


def main() -> None:
    asked = parse()
    torch.set_num_threads(1)
    of_role = [name for name, problem in PROBLEMS.items() if {"all", problem.role} & set(asked.problem)]
    problems = [*dict.fromkeys([*of_role, *(p for p in asked.problem if p in PROBLEMS), *asked.workload])]
    seeds, runs = asked.seed or [0], asked.runs or asked.out.with_suffix(".runs")
    session = Session(asked.out, runs, asked.device, asked.jobs, asked.seconds, asked.shared)
    lanes = [(p, lane) for p in problems for lane in asked.lane]
    if asked.references:
        session.run(Key(p, lane, REFERENCE_SEED) for p in problems for lane in REFERENCES)
        lanes = [*((p, lane) for p in problems if (lane := tuned(session.curves, p))), *lanes]
    session.run(Key(p, lane, seed) for seed in seeds for p, lane in lanes)


if __name__ == "__main__":
    main()
