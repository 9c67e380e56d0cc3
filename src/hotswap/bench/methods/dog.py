"""DoG (Ivgi, Hinder, Carmon 2023), from `dog-optimizer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain
from hotswap.bench.workloads import Batch, Measures, Task

__all__ = ["DoG"]


@METHODS.register("dog")
class DoG(Method):
    """SGD, whose rate is the distance that it has come over the gradients that it has seen."""

    title = "DoG"
    package = ("dog-optimizer", "1.0.3")
    first = Configuration({}, "README: the defaults, with PolynomialDecayAverager at its own")
    second = Configuration({"reps_rel": 1e-4}, "README: a larger reps_rel, such as 1e-4, where the rate does not rise")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> WithAverager:
        """See `Method.begin`."""
        import dog  # noqa: PLC0415 (an optional package)

        return WithAverager(task, dog.DoG(task.model.parameters(), **settings), dog.PolynomialDecayAverager(task.model))


class WithAverager(Plain):
    """A training whose average of the weights is measured and handed over."""

    def __init__(self, task: Task, optimizer: Optimizer, averager: Any) -> None:
        super().__init__(task, optimizer)
        self.averager = averager

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        super().step(batch)
        self.averager.step()

    def measure(self) -> Measures:
        """See `Training.measure`."""
        model = self.task.model
        current = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.averager.averaged_model.state_dict())
        measures = super().measure()
        model.load_state_dict(current)
        return measures
