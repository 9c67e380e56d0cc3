"""The tuned reference: AdamW and SGD with Nesterov momentum, as a quasi-random search configures them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.optim import SGD, AdamW, Optimizer
from torch.quasirandom import SobolEngine

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain, warmup_and_cosine
from hotswap.bench.workloads import Task

__all__ = ["REFERENCE", "SEARCHED", "Tuned", "searched"]

REFERENCE = "tuned"

POINTS, SOBOL_SEED = 20, 0

RANGES = {
    "adamw": {"lr": (1e-4, 3e-2), "weight_decay": (1e-3, 3e-1)},
    "sgd": {"lr": (3e-3, 1.0), "weight_decay": (1e-6, 1e-3)},
}
"""Between which numbers, on a logarithmic scale."""

LONGEST_WARMUP = 0.1

SEARCHED = tuple(f"sobol_{number:02}" for number in range(POINTS))
"""The names of the configurations."""


@cache
def searched() -> dict[str, Configuration]:
    """The points of a scrambled Sobol sequence: optimizer, rate, weight decay, warm-up; all end with a cosine."""
    found = {}
    engine = SobolEngine(4, scramble=True, seed=SOBOL_SEED)  # type: ignore[no-untyped-call]  # torch's
    points = engine.draw(POINTS, dtype=torch.float64).tolist()
    for name, (which, rate, decay, warmup) in zip(SEARCHED, points, strict=True):
        optimizer = "adamw" if which < 0.5 else "sgd"
        ranges = RANGES[optimizer]
        settings: dict[str, float | str] = {
            "optimizer": optimizer,
            "lr": _between(rate, *ranges["lr"]),
            "weight_decay": _between(decay, *ranges["weight_decay"]),
            "warmup": float(f"{LONGEST_WARMUP * warmup:.3g}"),
        }
        found[name] = Configuration(settings, "a point of the search")
    return found


def _between(share: float, low: float, high: float) -> float:
    """On a logarithmic scale, in three digits."""
    return float(f"{low * (high / low) ** share:.3g}")


@METHODS.register(REFERENCE)
class Tuned(Method):
    """The result of an expert with time for twenty trainings: the best of them, by validation."""

    title = "tuned reference"

    def configuration(self, name: str) -> Configuration:
        """See `Method.configuration`."""
        return searched()[name]

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        rest = dict(settings)
        kind, warmup = rest.pop("optimizer"), rest.pop("warmup")
        parameters = task.model.parameters()
        optimizer: Optimizer = (
            AdamW(parameters, **rest) if kind == "adamw" else SGD(parameters, momentum=0.9, nesterov=True, **rest)
        )
        return Plain(task, optimizer, warmup_and_cosine(optimizer, task, warmup))
