"""Schedule-Free AdamW (Defazio, Yang, Mehta, Mishchenko, Khaled, Cutkosky 2024), from `schedulefree`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain, calibrate, norms_of
from hotswap.bench.workloads import Batch, Measures, Task

__all__ = ["ScheduleFree"]


@METHODS.register("schedule_free")
class ScheduleFree(Method):
    """Averages of the weights stand in for a schedule."""

    title = "Schedule-Free AdamW"
    package = ("schedulefree", "1.4.1")
    first = Configuration(
        {"warmup": 0.05}, "README: the default rate of 0.0025, and a warm-up, whose length it leaves open: 5 % of steps"
    )
    second = Configuration(
        {"warmup": 0.05, "lr": 1e-2}, "README: rates from 1 to 10 times those of AdamW with a schedule; 10 times 1e-3"
    )

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Averaged:
        """See `Method.begin`."""
        from schedulefree import AdamWScheduleFree  # noqa: PLC0415 (an optional package)

        rest = dict(settings)
        warmup = round(rest.pop("warmup") * task.steps)
        return Averaged(task, AdamWScheduleFree(task.model.parameters(), warmup_steps=warmup, **rest))


class Averaged(Plain):
    """Steps at one point, measures at another."""

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.train()  # type: ignore[attr-defined]  # schedulefree's own
        super().step(batch)

    def measure(self) -> Measures:
        """Measure the averaged weights with batch norm's statistics for them, then return to training.

        The statistics that training has gathered are put back: a user evaluates once, at the end.
        """
        if not self.optimizer.state:
            return super().measure()
        self.optimizer.eval()  # type: ignore[attr-defined]  # schedulefree's own
        norms = norms_of(self.task)
        kept = [{name: value.clone() for name, value in norm.state_dict().items()} for norm in norms]
        calibrate(self.task)  # as its README says
        measures = super().measure()
        self.optimizer.train()  # type: ignore[attr-defined]  # schedulefree's own
        for norm, state in zip(norms, kept, strict=True):
            for name, value in norm.named_buffers(recurse=False):
                value.copy_(state[name])
        return measures
