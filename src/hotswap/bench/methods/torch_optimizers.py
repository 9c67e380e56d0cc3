"""Torch's own optimizers, as its documentation shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain, warmup_and_cosine
from hotswap.bench.workloads import Task

__all__ = ["SGD", "AdaDelta", "AdamW", "AdamWCosine"]


class TorchOptimizer(Method):
    """An optimizer of torch at a constant rate."""

    optimizer: ClassVar[type[Optimizer]]

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        return Plain(task, self.optimizer(task.model.parameters(), **settings))


@METHODS.register("sgd")
class SGD(TorchOptimizer):
    """Stochastic gradient descent with momentum."""

    title = "SGD"
    optimizer = torch.optim.SGD
    first = Configuration({"lr": 0.1, "momentum": 0.9}, "the example in the documentation of torch.optim.SGD")


@METHODS.register("adamw")
class AdamW(TorchOptimizer):
    """AdamW with torch's defaults, the usual first choice."""

    title = "AdamW"
    optimizer = torch.optim.AdamW
    first = Configuration({}, "the defaults of torch.optim.AdamW")


@METHODS.register("adamw_cosine")
class AdamWCosine(Method):
    """The same rate with the schedule that most training programs add: it needs to know the length."""

    title = "AdamW with cosine"
    first = Configuration(
        {"warmup": 0.05}, "the defaults of torch.optim.AdamW; warm-up over 5 % of steps and a cosine, as is usual"
    )

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        optimizer = torch.optim.AdamW(task.model.parameters())
        return Plain(task, optimizer, warmup_and_cosine(optimizer, task, settings["warmup"]))


@METHODS.register("adadelta")
class AdaDelta(TorchOptimizer):
    """The paper's rival without a rate to choose."""

    title = "AdaDelta"
    optimizer = torch.optim.Adadelta
    first = Configuration({}, "the defaults of torch.optim.Adadelta")
