"""Torch's own optimizers, as its documentation shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain
from hotswap.bench.workloads import Task

__all__ = ["SGD", "AdaDelta", "AdamW"]


class TorchOptimizer(Method):
    """One of torch's, at a constant rate."""

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
    """What most people begin with."""

    title = "AdamW"
    optimizer = torch.optim.AdamW
    first = Configuration({}, "the defaults of torch.optim.AdamW")


@METHODS.register("adadelta")
class AdaDelta(TorchOptimizer):
    """The paper's rival without a rate to choose."""

    title = "AdaDelta"
    optimizer = torch.optim.Adadelta
    first = Configuration({}, "the defaults of torch.optim.Adadelta")
