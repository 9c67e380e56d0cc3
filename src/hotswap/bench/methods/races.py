"""Races of optimizers, and the recipe that races by default, without a race."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hotswap
from hotswap.bench.methods.base import METHODS, Configuration, Method, Training
from hotswap.bench.workloads import Batch, Measures, Task

__all__ = ["FixedMuon", "OpenRace", "Race", "Racing"]


class Racing(Training):
    """A step is one pass, of the lane that has the model; measured are the weights that `Race.eval` puts there.

    Batch norm's statistics are those that training has left there.
    """

    def __init__(self, task: Task, race: hotswap.Race) -> None:
        super().__init__(task)
        self.race = race

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self.race.step(loss)
        self.race.zero_grad()

    def measure(self) -> Measures:
        """See `Training.measure`."""
        self.race.eval()
        try:
            return super().measure()
        finally:
            self.race.train()


@METHODS.register("race")
class Race(Method):
    """The default lanes. Those of Muon race on a CPU, too: they may be slow there, and the benchmark counts passes."""

    title = "Race"
    ours = True
    first = Configuration({}, "README: Race(model, total_steps=...), with lanes(model, muon=True) on every device")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Racing:
        """See `Method.begin`."""
        lanes = hotswap.lanes(task.model, muon=True)
        return Racing(task, hotswap.Race(task.model, lanes, total_steps=task.steps))


@METHODS.register("race_open")
class OpenRace(Method):
    """The same lanes in a race that does not know how long the run is: rates do not fall."""

    title = "Race, unknown length"
    ours = True
    first = Configuration({}, "README: Race(model), with lanes(model, muon=True) on every device")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Racing:
        """See `Method.begin`."""
        return Racing(task, hotswap.Race(task.model, hotswap.lanes(task.model, muon=True)))


@METHODS.register("muon")
class FixedMuon(Method):
    """One rate for all, in the schedule of a race, and no average."""

    title = "Muon, fixed"
    ours = True
    first = Configuration({}, "docstring of Muon: its default rate, with a warm-up and a decay to zero")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Racing:
        """See `Method.begin`."""
        muon = [hotswap.Muon(task.model)]
        return Racing(task, hotswap.Race(task.model, muon, total_steps=task.steps, average=False))
