"""Results that nobody has trained, and a trainer that takes no time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.plan import CHOOSING
from hotswap.bench.runs import PERCENTS, Point, Result, Run, State
from hotswap.bench.workloads import WORKLOADS

BUDGET = 1000


def made(
    workload: str,
    method: str,
    seed: int = 0,
    end: float = 0.1,
    *,
    configuration: str = FIRST,
    state: State = "finished",
    curve: Sequence[float] | None = None,
    **more: Any,
) -> Result:
    """A run that goes from 1 to `end` in equal steps, or along a curve with a number for each of `PERCENTS`."""
    run = Run(workload, method, configuration, seed, "smoke")
    values = curve or [*(1 + (end - 1) * place / (len(PERCENTS) - 1) for place in range(len(PERCENTS) - 1)), end]
    points = [
        Point(percent, BUDGET * percent / 100, 10 * percent, 0.1 * percent, value, value)
        for percent, value in zip(PERCENTS, values, strict=True)
    ]
    if state != "finished":
        points = points[:3]
    settings = dict(METHODS[method]().configuration(configuration).settings)
    reason = "" if state == "finished" else f"It has {state}."
    version = WORKLOADS[workload].version
    return Result(run, state, reason, tuple(points), BUDGET, version, settings, more)


def by_id(*results: Result) -> dict[str, Result]:
    return {result.run.id: result for result in results}


ORIGIN = {
    "hotswap": "0.1.0",
    "command": "hotswap bench run --out bench",
    "torch": "2.13",
    "python": "3.11",
    "device": "CPU",
    "date": "2026-01-02T03:04:05+00:00",
}


RANKED = (
    *("d_adaptation", "hotswap_sgd", "first_decrease", "preset_adam", "momo", "prodigy", "race", "race_open", "muon"),
    *("salsa", "schedule_free", "sgd", "adamw", "adamw_cosine", "adadelta", "vsgd"),
)
"""The methods that `whole` has runs of, the best first: ours are between others."""


def whole() -> dict[str, Result]:
    """Two workloads, all methods; one of them diverges on one, one is not installed."""
    assert {*RANKED, REFERENCE, "dog"} == {*METHODS}
    results = []
    for workload in ("paper_network", "autoencoder"):
        results += [
            made(workload, REFERENCE, CHOOSING, 0.1 + number / 100, configuration=name)
            for number, name in enumerate(SEARCHED)
        ]
        results += [made(workload, REFERENCE, seed, 0.1, configuration=SEARCHED[0]) for seed in range(5)]
        for number, method in enumerate(RANKED):
            results += [made(workload, method, seed, 0.08 + 0.01 * number, **ORIGIN) for seed in range(5)]
        results += [made(workload, "dog", seed, state="missing") for seed in range(5)]
    results += [made("paper_network", "salsa", seed, state="diverged") for seed in range(3)]
    results += [made("paper_network", "salsa", seed, 0.11, configuration=SECOND) for seed in range(5)]
    return by_id(*results)


class Pretending:
    """Makes results up in the place of `train_run`; the better, the larger the number of a configuration searched."""

    def __init__(self, fate: Callable[[Run], State] = lambda _: "finished") -> None:
        self.fate = fate
        self.asked: list[str] = []

    def __call__(self, work: object, run: Run, stopping: object, tell: Callable[[Run, Point], None]) -> Result:
        self.asked.append(run.id)
        number = int(run.configuration[-2:]) if run.configuration.startswith("sobol") else 0
        result = made(
            run.workload,
            run.method,
            run.seed,
            0.1 * math.exp(-number / 50),
            configuration=run.configuration,
            state=self.fate(run),
        )
        for point in result.points:
            tell(run, point)
        return result


class Silent:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended: list[str] = []
        self.plans: list[tuple[int, int]] = []
        self.points = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def planned(self, done: int, known: int) -> None:
        self.plans.append((done, known))

    def begins(self, unit: str, at: int, end: int, of: str) -> None:
        pass

    def reaches(self, unit: str, at: int, alive: int = 1, runs: int = 1) -> None:
        self.points += 1

    def ends(self, unit: str, how: str, why: str = "") -> None:
        self.ended.append(unit)
