"""D-Adaptation (Defazio, Mishchenko 2023), from `dadaptation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain, cosine
from hotswap.bench.workloads import Task

__all__ = ["DAdaptation"]


@METHODS.register("d_adaptation")
class DAdaptation(Method):
    """Adam, whose rate comes from a lower bound on the distance to the solution."""

    title = "D-Adaptation (Adam)"
    package = ("dadaptation", "3.2")
    first = Configuration({"lr": 1.0}, "README: lr=1, with the schedule that one would use otherwise: a cosine")
    second = Configuration(
        {"lr": 1.0, "growth_rate": 1.02}, "docstring of DAdaptAdam: growth_rate=1.02 has the effect of a warm-up"
    )

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        import dadaptation  # noqa: PLC0415 (an optional package)

        optimizer = dadaptation.DAdaptAdam(task.model.parameters(), **settings)
        return Plain(task, optimizer, cosine(optimizer, task))
