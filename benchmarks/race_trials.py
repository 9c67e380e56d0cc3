"""Trials of races and of fixed optimizers at equal passes: which lanes, when to judge, which decay.

    python -m benchmarks.race_trials --out trials --device cuda --jobs 12 --trial race --trial muon_6e-3 --seed 0
    python -m benchmarks.race_trials --out trials --table

Every run is one file in the folder: a workload or small problem, a seed, a trial, its measures along the way. Runs that
are there are not trained again. Scores are validation measures over those of the tuned reference of the benchmark
(`results/tuning_free`), or of the small problem (the best of eight tuned runs of AdamW and SGD).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.race_problems import PROBLEMS
from hotswap.bench.workloads import WORKLOADS, Task
from hotswap.ensemble.precision import full_float32
from hotswap.race import Muon, Race

MODULES = {name: import_module(f"hotswap.race.{name}") for name in ("average", "judging", "lane", "muon", "schedule")}

PERCENTS = (10, 20, 30, 50, 70, 100)

CHOOSING = ("autoencoder", "recurrent_text", "gaussian_regression", "transformer_text")
CONFIRMING = ("paper_network", "fashion_convolution", "logistic_regression", "cifar_resnet")
"""Of the benchmark's workloads: those on which defaults are chosen, and those on which they are confirmed."""


def make(kind: str, model: torch.nn.Module, rate: float, **options: Any) -> Optimizer:
    """An optimizer by its short name."""
    if kind == "muon":
        return Muon(model, lr=rate, **options)
    if kind == "adamw":
        return AdamW(model.parameters(), lr=rate, **options)
    return SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True, **options)


def optimizers_of(text: str, model: torch.nn.Module, **options: Any) -> list[Optimizer]:
    """Optimizers from a text such as muon:2e-2+adamw:3e-3."""
    found = []
    for part in text.split("+"):
        kind, rate = part.split(":")
        found.append(make(kind, model, float(rate), **(options if kind == "muon" else {})))
    return found


def task_of(problem: str, seed: int, device: str) -> Task:
    """A workload of the benchmark or a small problem."""
    if problem in WORKLOADS:
        return WORKLOADS[problem]().task(seed, "full", device)
    return PROBLEMS[problem](seed, device)


def run(problem: str, trial: str, seed: int, device: str, folder: str) -> str:
    """Train once and write what came of it.

    A trial is `fixed@muon:2e-2@OPTIONS`, `cosine@adamw:1e-3` or `race@muon:2e-2+muon:6e-3@OPTIONS`; options are
    name=value pairs, separated by commas: those of the optimizer or race, or `judging.NAME`, `schedule.NAME`.
    """
    path = Path(folder) / f"{problem}~{trial.replace('/', '_')}~{seed}.json"
    if path.exists():
        return f"{path.stem}: there"
    torch.set_num_threads(1)
    began = time.perf_counter()
    with full_float32():
        kind, names, *rest = trial.split("@")
        options = {key: json.loads(value) for key, value in (o.split("=") for o in rest[0].split(",") if o)} if rest else {}
        for key in [key for key in options if "." in key]:
            where, name = key.split(".")
            setattr(MODULES[where], name, options.pop(key))
        of_muon = {k: options.pop(k) for k in [*options] if k in ("weight_decay", "momentum", "betas")}
        task = task_of(problem, seed, device)
        torch.manual_seed(seed)
        result: dict[str, Any] = {"problem": problem, "trial": trial, "seed": seed, "steps": task.steps, "device": device}
        optimizer: Any
        if kind == "race":
            known = None if options.pop("open", 0) else task.steps
            chosen = MODULES["lane"].lanes(task.model, True) if names == "default" else optimizers_of(names, task.model, **of_muon)
            judge = (lambda _: task.measure().validation) if options.pop("judge", 0) else None
            optimizer = Race(task.model, chosen, total_steps=known, judge=judge, **options)
            result.update(_raced(task, optimizer))
        elif kind == "shared":
            result.update(_shared(task, optimizers_of(names, task.model, **of_muon)))
        else:
            optimizer = optimizers_of(names, task.model, **of_muon)[0]
            result.update(_plain(task, optimizer, kind, **options))
    result["seconds"] = time.perf_counter() - began
    path.with_suffix(".part").write_text(json.dumps(result))
    os.replace(path.with_suffix(".part"), path)
    return f"{path.stem}: {result['validation']['100']:.4g} in {result['seconds']:.0f} s"


def _measured(task: Task, step: Callable[[Any], None], before: Callable[[], None], after: Callable[[], None]) -> dict[str, Any]:
    batches, found = task.minibatches(), {}
    due = {max(1, round(percent * task.steps / 100)): str(percent) for percent in PERCENTS}
    train = {}
    for number in range(1, task.steps + 1):
        step(next(batches))
        if number in due:
            before()
            measures = task.measure()
            after()
            train[due[number]], found[due[number]] = measures
    return {"validation": found, "train": train}


def _raced(task: Task, race: Race) -> dict[str, Any]:
    raw: list[float] = []

    def step(batch: Any) -> None:
        loss = task.loss(batch)
        loss.backward()
        race.step(loss)
        race.zero_grad()

    def before() -> None:
        raw.append(task.measure().validation)
        race.eval()

    found = _measured(task, step, before, race.train)
    winner = race.winner or race.leader
    told = [[s.name, s.steps, s.loss, s.dropped_at] for s in race.standings()]
    return {**found, "raw": dict(zip(map(str, PERCENTS), raw, strict=True)), "winner": winner.name, "standings": told}


def _shared(task: Task, optimizers: list[Optimizer]) -> dict[str, Any]:
    """A race whose lanes all train on the same minibatches, at the same number of passes, judged by the same rules."""
    judging, schedule, seat_of = MODULES["judging"], MODULES["schedule"], MODULES["lane"].Seat
    kinds = [type(optimizer) for optimizer in optimizers]
    plan = judging.plan(kinds, task.steps, 0.15)
    seat = seat_of(task.model, list(task.model.parameters()), [])
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    models = {lane: seat.saved() for lane in range(plan.lanes)}
    losses: dict[int, list[float]] = {lane: [] for lane in models}
    batches, passes, steps = task.minibatches(), 0, 0
    raw: dict[str, float] = {}
    due = {max(1, round(percent * task.steps / 100)): str(percent) for percent in PERCENTS}
    until = [one.until for one in plan.rounds]

    def take(lane: int, batch: Any) -> float:
        loss = task.loss(batch)
        loss.backward()
        factor = schedule.factor(passes, steps, task.steps, (0, task.steps))
        for group in optimizers[lane].param_groups:
            group["lr"] = rates[lane] * factor
        optimizers[lane].step()
        optimizers[lane].zero_grad()
        return loss.item()

    while passes < task.steps:
        batch = next(batches)
        for lane in list(models):
            if len(models) > 1:
                seat.load(models[lane])
            losses[lane].append(take(lane, batch))
            models[lane] = seat.saved(models[lane]) if len(models) > 1 else models[lane]
            passes += 1
            if passes in due:
                raw[due[passes]] = task.measure().validation
        steps += 1
        if len(models) > 1 and steps in until:
            scores = {lane: judging.score_of(losses[lane]) for lane in models}
            first = losses[0][0]
            better = [
                lane
                for lane in sorted(models, key=lambda lane: scores[lane].mean)
                if judging.beats(scores[lane], scores[0], first, farther=rates[lane] > rates[0])
            ]
            winner = better[0] if better else 0
            seat.load(models[winner])
            models = {winner: models[winner]}
    return {"validation": raw, "winner": str(rates[next(iter(models))])}


def _plain(task: Task, optimizer: Optimizer, kind: str, start: float = 0.0, warmup: float = 0.02, curve: int = 0) -> dict[str, Any]:
    total = task.steps
    rising = max(1, min(100, round(warmup * total)))

    def shape(step: int) -> float:
        up = min(1.0, (step + 1) / rising)
        if kind == "cosine":
            return up * 0.5 * (1 + math.cos(math.pi * min(1.0, step / total)))
        return up * min(1.0, (total - step) / (total * (1 - start)))

    scheduler = LambdaLR(optimizer, shape)
    losses = []

    def step(batch: Any) -> None:
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.detach())

    found = _measured(task, step, lambda: None, lambda: None)
    values = torch.stack(losses).tolist()
    return {**found, "losses": values[: len(values) // 4], "winner": ""}


def main() -> None:
    """Train what is not there, or print the table of what is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--problem", action="append", default=[])
    parser.add_argument("--trial", action="append", default=[])
    parser.add_argument("--seed", action="append", type=int, default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which no run begins")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    todo = [(p, t, s) for s in given.seed or [0] for t in given.trial for p in given.problem]
    began = time.perf_counter()
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"), max_tasks_per_child=None) as pool:
        futures = {pool.submit(_safely, *one, given.device, str(given.out), began + given.stop_after): one for one in todo}
        for number, future in enumerate(as_completed(futures), 1):
            print(f"[{number}/{len(todo)} {time.perf_counter() - began:.0f} s] {future.result()}", flush=True)


def _safely(problem: str, trial: str, seed: int, device: str, folder: str, deadline: float) -> str:
    if time.perf_counter() > deadline:
        return "left"
    try:
        return run(problem, trial, seed, device, folder)
    except Exception:
        return f"{problem} {trial} {seed}: {traceback.format_exc()[-600:]}"


if __name__ == "__main__":
    main()
