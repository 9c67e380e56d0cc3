"""vSGD (Schaul, Zhang, LeCun 2013; with finite differences: Schaul, LeCun 2013), the baseline that the paper cites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain
from hotswap.bench.vsgd import VSGD
from hotswap.bench.workloads import Batch, Task

__all__ = ["VSgd"]


@METHODS.register("vsgd")
class VSgd(Method):
    """A rate for each parameter, from the variance of its gradients and the curvature."""

    title = "vSGD-fd"
    first = Configuration({}, "the papers: there is nothing to set; the slow start is the first author's program's")
    second = Configuration({"slow_start": "tenth"}, "ICML 2013: a slow start by a tenth of the number of parameters")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> TwoGradients:
        """See `Method.begin`."""
        parameters = list(task.model.parameters())
        tenth = max(1.0, sum(parameter.numel() for parameter in parameters) / 10)
        slow = tenth if settings.get("slow_start") == "tenth" else 2.0
        return TwoGradients(task, VSGD(parameters, module=task.model, slow=slow))


class TwoGradients(Plain):
    """The optimizer computes two gradients a step; both are counted."""

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.step(lambda: self.loss(batch))  # type: ignore[arg-type, return-value]  # it does the backward
