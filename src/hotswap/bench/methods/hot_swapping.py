"""Ours: the paper's algorithm, and every preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import hotswap
from hotswap import presets
from hotswap.bench.methods.base import METHODS, Configuration, Method, Training
from hotswap.bench.workloads import Batch, Task
from hotswap.optim import HotSwap
from hotswap.rewards import RelativeReduction, Reward
from hotswap.searches import FirstDecrease, Search

__all__ = ["FirstDecreaseInstead", "PaperAlgorithm", "Preset"]


BELOW_ZERO = Configuration(
    {"reward": "relative"},
    "documentation of rewards: RelativeReduction for losses that go below zero",
    "loss below zero",
)


def _reward(settings: Mapping[str, Any]) -> Reward | None:
    return RelativeReduction() if settings.get("reward") == "relative" else None


class Swapping(Training):
    """A step is a gradient pass and the trials of its search."""

    def __init__(self, task: Task, optimizer: HotSwap) -> None:
        super().__init__(task)
        self.optimizer = optimizer

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.step(lambda: self.loss(batch))


@METHODS.register("hotswap_sgd")
class PaperAlgorithm(Method):
    """Discounted UCB over 33 rates of SGD, and backtracking."""

    title = "HotSwapSGD (the paper)"
    ours = True
    first = Configuration({}, "README: HotSwapSGD(model)")
    second = BELOW_ZERO
    search: ClassVar[Search | None] = None

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Swapping:
        """See `Method.begin`."""
        reward = _reward(settings)
        return Swapping(task, hotswap.HotSwapSGD(task.model, search=self.search, reward=reward, seed=seed))


@METHODS.register("first_decrease")
class FirstDecreaseInstead(PaperAlgorithm):
    """The same, with the search that takes the first rate that lowers the loss."""

    title = "HotSwapSGD, first decrease"
    first = Configuration({}, "documentation: HotSwapSGD(model, search=FirstDecrease())")
    search = FirstDecrease()


class Preset(Method):
    """A combination that a study has found good."""

    ours = True
    second = BELOW_ZERO
    preset: ClassVar[str]

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Swapping:
        """See `Method.begin`."""
        return Swapping(task, getattr(presets, self.preset)(task.model, reward=_reward(settings), seed=seed))


for _name in presets.__all__:
    _parts = {
        "__doc__": f"`hotswap.presets.{_name}`.",
        "title": f"hotswap.presets.{_name}",
        "preset": _name,
        "first": Configuration({}, f"documentation: hotswap.presets.{_name}(model)"),
    }
    METHODS.register(f"preset_{_name}")(type(f"Preset_{_name}", (Preset,), _parts))
