"""Ours: the paper's algorithm and every preset, races, and the recipe that races by default, without a race."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import hotswap
from hotswap import presets
from hotswap.bench.methods.base import METHODS, Configuration, Method, Training, WithClosure
from hotswap.bench.workloads import Batch, Measures, Task
from hotswap.optim import HotSwap, HotSwapSGD
from hotswap.rewards import RelativeReduction
from hotswap.searches import FirstDecrease

__all__ = ["FirstDecreaseInstead", "FixedMuon", "OpenRace", "PaperAlgorithm", "PresetAdam", "Race", "Racing"]


class Swapped(Method):
    """A hot-swapped optimizer. A step is a gradient pass and the trials of its search."""

    ours = True
    second = Configuration(
        {"reward": "relative"},
        "documentation of rewards: RelativeReduction for losses that go below zero",
        "loss below zero",
    )
    build: ClassVar[Callable[..., HotSwap]]
    """Makes the optimizer of a model, with a reward and a seed."""

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> WithClosure:
        """See `Method.begin`."""
        reward = RelativeReduction() if settings.get("reward") == "relative" else None
        return WithClosure(task, self.build(task.model, reward=reward, seed=seed))


@METHODS.register("hotswap_sgd")
class PaperAlgorithm(Swapped):
    """Discounted UCB over 33 rates of SGD, and backtracking."""

    title = "HotSwapSGD (the paper)"
    first = Configuration({}, "README: HotSwapSGD(model)")
    build = staticmethod(HotSwapSGD)


@METHODS.register("first_decrease")
class FirstDecreaseInstead(Swapped):
    """The same, with the search that takes the first rate that lowers the loss."""

    title = "HotSwapSGD, first decrease"
    first = Configuration({}, "documentation: HotSwapSGD(model, search=FirstDecrease())")
    build = staticmethod(partial(HotSwapSGD, search=FirstDecrease()))


@METHODS.register("preset_adam")
class PresetAdam(Swapped):
    """`hotswap.presets.adam`, a combination that a study has found good."""

    title = "hotswap.presets.adam"
    first = Configuration({}, "documentation: hotswap.presets.adam(model)")
    build = staticmethod(presets.adam)


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
