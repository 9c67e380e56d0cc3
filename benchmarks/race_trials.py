"""Trials of races and of fixed optimizers at equal passes, from which the defaults of races were chosen.

    python -m benchmarks.race_trials --out trials --problem autoencoder --trial race@default@ --seed 0 --device cuda
    python -m benchmarks.race_trials --out trials --keep results/races

A trial is `fixed@muon:2e-2@OPTIONS` (a linear decay), `cosine@adamw:1e-3@`, `race@muon:2e-2+muon:6e-3@OPTIONS`,
`race@default@` (the default lanes) or `shared@...` (lanes that share every minibatch). Options are name=value pairs,
separated by commas: `weight_decay`, `momentum` (of Muon), `start` (share of a run at which a decay begins), `open=1`
(no length), `judge=1` (by validation), other settings of `Race`, and `MODULE.NAME` for a constant of `hotswap.race`.

Each run is one file in the folder; runs that are there are not trained again. `--keep` writes the means of all trials
as scores: validation measures over those of the benchmark's tuned reference (`results/tuning_free`), or, on small
problems, of the best of the `cosine` trials of AdamW and SGD.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.race_problems import PROBLEMS
from hotswap.bench.workloads import WORKLOADS, Task
from hotswap.ensemble.engine import full_float32
from hotswap.files import write_text
from hotswap.race import Muon, Race, lanes

SET = ("average", "handover", "judging", "lane", "muon", "schedule")
"""Modules of `hotswap.race` whose constants a trial can set."""

MODULES = {name: import_module(f"hotswap.race.{name}") for name in SET}
PERCENTS = (10, 20, 30, 50, 70, 100)
OF_MUON = ("weight_decay", "momentum")
NOT_LOOKED_AT = ("cifar_resnet", "logistic_regression")
"""Workloads of the benchmark on which no trial was run before the defaults were fixed."""


def optimizers_of(text: str, model: torch.nn.Module, **of_muon: Any) -> list[Optimizer]:
    """Optimizers from a text such as muon:2e-2+adamw:3e-3."""
    found: list[Optimizer] = []
    for part in text.split("+"):
        kind, rate = part.split(":")
        if kind == "muon":
            found.append(Muon(model, lr=float(rate), **of_muon))
        elif kind == "adamw":
            found.append(AdamW(model.parameters(), lr=float(rate)))
        else:
            found.append(SGD(model.parameters(), lr=float(rate), momentum=0.9, nesterov=True))
    return found


def run(problem: str, trial: str, seed: int, device: str, folder: Path) -> str:
    """Train once and write what came of it; a line."""
    path = folder / f"{problem}~{trial}~{seed}.json"
    if path.exists():
        return f"{path.stem}: there"
    torch.set_num_threads(1)
    began = time.perf_counter()
    kind, names, text = trial.split("@")
    options = {key: json.loads(value) for key, value in (one.split("=") for one in text.split(",") if one)}
    for key in [key for key in options if "." in key]:
        module, name = key.split(".")
        setattr(MODULES[module], name, options.pop(key))
    of_muon = {name: options.pop(name) for name in OF_MUON if name in options}
    with full_float32():
        task = (
            WORKLOADS[problem]().task(seed, "full", device) if problem in WORKLOADS else PROBLEMS[problem](seed, device)
        )
        torch.manual_seed(seed)
        optimizers = lanes(task.model, muon=True) if names == "default" else optimizers_of(names, task.model, **of_muon)
        train: Callable[..., dict[str, Any]] = {"race": _raced, "shared": _shared}.get(kind, _plain)
        result = train(task, optimizers, **({"cosine": kind == "cosine"} if train is _plain else {}), **options)
    told = {"problem": problem, "trial": trial, "seed": seed, "device": device, "torch": torch.__version__}
    seconds = time.perf_counter() - began
    write_text(path, json.dumps({**told, "date": str(date.today()), "seconds": seconds, **result}))
    return f"{path.stem}: {result['validation']['100']:.4g} in {seconds:.0f} s"


def _due(task: Task) -> dict[int, str]:
    """The steps after which there are measurements."""
    return {max(1, round(percent * task.steps / 100)): str(percent) for percent in PERCENTS}


def _raced(task: Task, optimizers: list[Optimizer], **options: Any) -> dict[str, Any]:
    """A race with turns; measured are the weights that training has, and those that the race would hand over."""
    total = None if options.pop("open", 0) else task.steps
    judge = (lambda _: task.measure().validation) if options.pop("judge", 0) else None
    race = Race(task.model, optimizers, total_steps=total, judge=judge, **options)
    batches, due, raw, found = task.minibatches(), _due(task), {}, {}
    for number in range(1, task.steps + 1):
        loss = task.loss(next(batches))
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        race.step(loss)
        race.zero_grad()
        if number in due:
            raw[due[number]] = task.measure().validation
            race.eval()
            found[due[number]] = task.measure().validation
            race.train()
    told = [[one.name, one.steps, one.loss, one.dropped_at] for one in race.standings()]
    return {"validation": found, "raw": raw, "winner": race.leader.name, "standings": told}


def _plain(task: Task, optimizers: list[Optimizer], start: float = 0.0, *, cosine: bool = False) -> dict[str, Any]:
    """One optimizer, with a warm-up and a decay to zero."""
    (optimizer,) = optimizers
    total, rising = task.steps, MODULES["schedule"].warmup_of(task.steps)

    def shape(step: int) -> float:
        up = min(1.0, (step + 1) / rising)
        if cosine:
            return up * 0.5 * (1 + math.cos(math.pi * min(1.0, step / total)))
        return up * min(1.0, (total - step) / (total * (1 - start)))

    scheduler, batches, due, found = LambdaLR(optimizer, shape), task.minibatches(), _due(task), {}
    for number in range(1, total + 1):
        loss = task.loss(next(batches))
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if number in due:
            found[due[number]] = task.measure().validation
    return {"validation": found, "winner": ""}


def _shared(task: Task, optimizers: list[Optimizer]) -> dict[str, Any]:
    """A race whose lanes share every minibatch, at the same number of passes, compared by the same rules."""
    judging, schedule = MODULES["judging"], MODULES["schedule"]
    plan = judging.plan([type(optimizer) for optimizer in optimizers], task.steps, 0.15)
    seat = MODULES["lane"].Seat(task.model, list(task.model.parameters()), [])
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    models = {lane: seat.saved() for lane in range(plan.lanes)}
    losses: dict[int, list[float]] = {lane: [] for lane in models}
    batches, due, found, passes, steps = task.minibatches(), _due(task), {}, 0, 0
    while passes < task.steps:
        batch = next(batches)
        for lane in list(models):
            if len(models) > 1:
                seat.load(models[lane])
            loss = task.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            for group in optimizers[lane].param_groups:
                group["lr"] = rates[lane] * schedule.factor(passes, steps, task.steps, (0, task.steps))
            optimizers[lane].step()
            optimizers[lane].zero_grad()
            losses[lane].append(loss.item())
            passes += 1
            if len(models) > 1:
                models[lane] = seat.saved(models[lane])
            if passes in due:
                found[due[passes]] = task.measure().validation
        steps += 1
        if len(models) > 1 and steps == plan.rounds[0].until:
            scores = {lane: judging.score_of(losses[lane]) for lane in models}
            winner = min(
                (
                    lane
                    for lane in models
                    if not lane or judging.beats(scores[lane], scores[0], losses[0][0], farther=rates[lane] > rates[0])
                ),
                key=lambda lane: (not lane, scores[lane].mean),
            )
            seat.load(models[winner])
            models = {winner: models[winner]}
    return {"validation": found, "winner": str(rates[next(iter(models))])}


def keep(folders: Iterable[Path], target: Path) -> None:
    """Write the means and the worst scores of all trials that the folders hold, and where they come from.

    Rows of other trials that are in the target stay.
    """
    path = target / "trials.json"
    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": [], "references": {}}
    runs = [
        json.loads(path.read_text(encoding="utf-8")) for folder in folders for path in sorted(folder.glob("*.json"))
    ]
    tuned = _tuned(Path(__file__).parents[1] / "results" / "tuning_free")
    levels = {**tuned, **there["references"], **_best_small(runs)}
    by_trial: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    dates: dict[str, str] = {}
    for one in runs:
        if not one["trial"].startswith("cosine"):
            dates[one["trial"]] = max(one["date"], dates.get(one["trial"], ""))
            by_trial[one["trial"]][one["problem"]].append(min(one["validation"]["100"], 1e6) / levels[one["problem"]])
    rows = [{**_row(trial, found), "date": dates[trial]} for trial, found in by_trial.items()]
    rows += [row for row in there["rows"] if row["trial"] not in by_trial]
    small = {role: sorted(n for n, p in PROBLEMS.items() if p.role == role) for role in ("choosing", "confirming")}
    versions = {one["torch"] for one in runs if "torch" in one} | set(
        there.get("origin", {}).get("torch", "").split(", ")
    )
    origin = {"torch": ", ".join(sorted(versions - {""}))}
    document = {
        "origin": {**origin, "command": "python -m benchmarks.race_trials", "date": str(date.today())},
        "choosing": [*sorted(name for name in WORKLOADS if name not in NOT_LOOKED_AT), *small["choosing"]],
        "confirming": [*NOT_LOOKED_AT, *small["confirming"]],
        "references": {name: level for name, level in levels.items() if name in PROBLEMS},
        "rows": sorted(rows, key=lambda row: row["trial"]),
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _tuned(folder: Path) -> dict[str, float]:
    import pandas as pd  # noqa: PLC0415 (a machine that trains may lack it)

    points = pd.read_parquet(folder / "points.parquet")
    ends = points[(points.method == "tuned") & (points.percent == 100) & (points.seed < 100)]
    return {str(name): float(level) for name, level in ends.groupby("workload").validation.median().items()}


def _best_small(runs: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The best trial of AdamW and SGD with a cosine on each small problem."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in runs:
        if one["trial"].startswith("cosine") and one["problem"] in PROBLEMS:
            found[one["problem"]][one["trial"]].append(one["validation"]["100"])
    return {
        problem: min(sum(v) / len(v) for v in trials.values() if all(map(math.isfinite, v)))
        for problem, trials in found.items()
    }


def _row(trial: str, found: dict[str, list[float]]) -> dict[str, Any]:
    """Means and worst scores of a trial on each group of problems; seeds count by their geometric mean."""
    groups: dict[str, list[float]] = defaultdict(list)
    for problem, values in found.items():
        group = f"small, {PROBLEMS[problem].role}" if problem in PROBLEMS else "workloads"
        groups[group].append(_geometric(values))
    return {
        "trial": trial,
        "seeds": max(map(len, found.values())),
        "problems": {group: len(values) for group, values in groups.items()},
        "means": {group: _geometric(values) for group, values in sorted(groups.items())},
        "worst": {group: max(values) for group, values in sorted(groups.items())},
    }


def _geometric(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def main() -> None:
    """Train what is not there, or keep the means of what is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", required=True, type=Path, action="append", help="a folder of runs; several with --keep"
    )
    parser.add_argument("--problem", action="append", default=[], help="a workload or small problem; repeat for more")
    parser.add_argument("--trial", action="append", default=[], help="repeat for more")
    parser.add_argument("--seed", action="append", type=int, default=[], help="repeat for more")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train side by side")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds after which no run begins")
    parser.add_argument("--keep", type=Path, help="write the means of all runs there")
    given = parser.parse_args()
    if given.keep is not None:
        keep(given.out, given.keep)
        return
    folder: Path = given.out[0]
    folder.mkdir(parents=True, exist_ok=True)
    todo = [(p, t, s) for s in given.seed or [0] for t in given.trial for p in given.problem]
    began = time.monotonic()
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_safely, *one, given.device, folder, began + given.stop_after) for one in todo]
        for number, future in enumerate(as_completed(futures), 1):
            print(f"[{number}/{len(todo)} {time.monotonic() - began:.0f} s] {future.result()}", flush=True)


def _safely(problem: str, trial: str, seed: int, device: str, folder: Path, deadline: float) -> str:
    if time.monotonic() > deadline:
        return f"{problem}, {trial}, {seed}: left for the next time"
    try:
        return run(problem, trial, seed, device, folder)
    except Exception:
        return f"{problem}, {trial}, {seed}: {traceback.format_exc(limit=-3)}"


if __name__ == "__main__":
    main()
