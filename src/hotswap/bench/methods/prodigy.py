"""Prodigy (Mishchenko, Defazio 2024), from `prodigyopt`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain, cosine
from hotswap.bench.workloads import Task

__all__ = ["Prodigy"]


@METHODS.register("prodigy")
class Prodigy(Method):
    """Adam, whose rate comes from an estimate of the distance to the solution."""

    title = "Prodigy"
    package = ("prodigyopt", "1.1.2")
    first = Configuration({"lr": 1.0}, "README: lr=1 for all networks, with cosine annealing over all steps")
    second = Configuration({"lr": 1.0, "d0": 1e-4}, "README: a larger d0, up to 1e-4, where a model is not training")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        import prodigyopt  # noqa: PLC0415 (an optional package)

        optimizer = prodigyopt.Prodigy(task.model.parameters(), **settings)
        return Plain(task, optimizer, cosine(optimizer, task))
