"""MoMo-Adam (Schaipp, Ohana, Eickenberg, Defazio, Gower 2024), from `momo-opt`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain
from hotswap.bench.workloads import Batch, Task

__all__ = ["MoMo"]


@METHODS.register("momo")
class MoMo(Method):
    """Adam with Polyak's step size, for losses that come near a lower bound."""

    title = "MoMo-Adam"
    package = ("momo-opt", "0.1.0")
    first = Configuration({"lr": 1e-2}, "README: MomoAdam with lr=1e-2, constant, and a lower bound of 0")
    second = Configuration(
        {"lr": 1e-2, "lb": -10.0, "use_fstar": True},
        "README: use_fstar=True where the lower bound is not known; lb, which its estimate never crosses, is below all",
    )

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> WithLoss:
        """See `Method.begin`."""
        import momo  # noqa: PLC0415 (an optional package)

        return WithLoss(task, momo.MomoAdam(task.model.parameters(), **settings))


class WithLoss(Plain):
    """The optimizer is told the loss."""

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self.optimizer.step(loss=loss)  # type: ignore[call-overload]  # momo's own
