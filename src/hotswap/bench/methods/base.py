"""The interface of a method: a way of training a task, with one configuration for all workloads."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from hotswap.bench.workloads import Batch, Kind, Measures, Task, Workload
from hotswap.errors import SettingError
from hotswap.registry import Registry, check_class

__all__ = [
    "FIRST",
    "METHODS",
    "SECOND",
    "Clock",
    "Configuration",
    "Method",
    "Plain",
    "Training",
    "WithClosure",
    "calibrate",
    "norms_of",
    "warmup_and_cosine",
]

FIRST, SECOND = "default", "second"
"""The names of a method's configurations."""

CALIBRATION = 50
"""Minibatches that batch norm's statistics are taken from where the measured weights are an average."""

Value = float | int | bool | str


@dataclass(frozen=True)
class Configuration:
    """The settings of a method, and who says that they are good ones."""

    settings: Mapping[str, Value] = field(default_factory=dict)
    source: str = ""
    """The place where the method's authors recommend the settings."""
    kind: Kind | None = None
    """The kind of workload that the authors recommend the settings for; None for all workloads."""


class Clock:
    """Counts every evaluation of a loss and every backward pass from one, whoever asks for them.

    A forward alone counts a third of a pass, and a backward two thirds.
    """

    def __init__(self) -> None:
        self._thirds = 0  # whole numbers, so that sums are exact

    @property
    def cost(self) -> float:
        """Passes so far."""
        return self._thirds / 3

    def counted(self, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
        """The same loss, counted."""

        def evaluated(batch: Batch) -> Tensor:
            value = loss(batch)
            self._thirds += 1
            if value.requires_grad:
                value.register_hook(self._backward)  # type: ignore[no-untyped-call]  # torch's
            return value

        return evaluated

    def _backward(self, _: Tensor) -> None:
        self._thirds += 2


class Training:
    """A task while a method trains it. Subclasses take steps."""

    def __init__(self, task: Task) -> None:
        self.task, self._clock = task, Clock()
        self.loss = self._clock.counted(task.loss)

    def step(self, batch: Batch) -> None:
        """Train on a minibatch."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """Forward-and-backward passes so far, all trials among them."""
        return self._clock.cost

    def measure(self) -> Measures:
        """How good the network is that the method would hand over now. Measuring costs nothing."""
        return self.task.measure()


class Plain(Training):
    """An optimizer in the usual loop, perhaps with a schedule."""

    def __init__(self, task: Task, optimizer: Optimizer, schedule: LRScheduler | None = None) -> None:
        super().__init__(task)
        self.optimizer, self.schedule = optimizer, schedule

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.zero_grad()
        self.loss(batch).backward()  # type: ignore[no-untyped-call]  # torch's
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()


class WithClosure(Plain):
    """The optimizer evaluates the loss itself, and does the backward passes; all of them are counted."""

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.step(lambda: self.loss(batch))  # type: ignore[arg-type, return-value]  # a tensor


class Method(ABC):
    """A way of training. One that is not there, for want of its package, can still be listed."""

    name: ClassVar[str] = ""
    title: ClassVar[str]
    """The name that a reader sees."""
    package: ClassVar[tuple[str, str] | None] = None
    """The distribution that it comes in and its version; None for torch's own and ours."""
    ours: ClassVar[bool] = False
    first: ClassVar[Configuration] = Configuration()
    """The configuration for all workloads."""
    second: ClassVar[Configuration | None] = None
    """The configuration that the method's documentation advises where the first fails."""
    version: ClassVar[int] = 1
    """The version of the way of training; results of an earlier version are outdated."""

    @classmethod
    def has_second(cls, workload: type[Workload]) -> bool:
        """Whether the method has a second configuration for a workload."""
        return cls.second is not None and (cls.second.kind is None or cls.second.kind in workload.kinds)

    def configuration(self, name: str) -> Configuration:
        """The configuration of this name."""
        known = {FIRST: self.first} | ({SECOND: self.second} if self.second is not None else {})
        if name not in known:
            raise SettingError(f"{self.title} has no configuration {name!r}; it has {', '.join(known)}.")
        return known[name]

    @abstractmethod
    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Training:
        """Set out on a task."""

    @classmethod
    def missing(cls) -> str:
        """The reason why the method cannot run here; empty if it can."""
        if cls.package is None:
            return ""
        name, wanted = cls.package
        try:
            found = version(name)
        except PackageNotFoundError:
            return f"{name} is not installed; pip install '{name}=={wanted}'."
        if found != wanted:
            return f"{name} {found} is installed, and the benchmark needs {wanted}; pip install '{name}=={wanted}'."
        return ""


def _check(thing: object) -> None:
    check_class(thing, Method, ("title",))
    assert isinstance(thing, type)
    assert issubclass(thing, Method)
    kinds = (type(None), Configuration)
    if not isinstance(thing.first, Configuration) or not isinstance(thing.second, kinds):
        raise SettingError(
            f"{thing.__name__} must have a Configuration as its first, and as its second, if it has one."
        )
    if not (thing.package is None or (isinstance(thing.package, tuple) and len(thing.package) == 2)):
        raise SettingError(f"{thing.__name__} must have a package of the form ('name', 'version').")
    values = [value for one in (thing.first, thing.second) if one is not None for value in one.settings.values()]
    if strange := [value for value in values if not _is_stored(value)]:
        told = "a setting is stored as JSON, so use numbers, words, True, False, None, and lists of them"
        raise SettingError(f"{thing.__name__} has the setting {strange[0]!r}; {told}.")


def _is_stored(value: object) -> bool:
    """Whether a setting comes back from JSON as it was: one that does not would look changed ever after."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


METHODS: Registry[type[Method]] = Registry("method", "name", _check)
"""All of them, by name."""


def norms_of(task: Task) -> list[nn.Module]:
    """The modules with batch norm."""
    return [m for m in task.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def calibrate(task: Task) -> None:
    """Take the statistics of batch norm from minibatches, at the weights as they are; without a trace elsewhere."""
    if not norms_of(task):
        return
    here = next(task.model.parameters()).device
    with torch.no_grad(), torch.random.fork_rng([here] if here.type == "cuda" else []):
        for batch in islice(task.minibatches(), CALIBRATION):
            task.loss(batch)


def warmup_and_cosine(optimizer: Optimizer, task: Task, warmup: float) -> LRScheduler:
    """Rates rise in a straight line over a share of all steps, then fall to 0 along a cosine."""
    rising = warmup * task.steps

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rising) / max(1.0, task.steps - rising))))

    return LambdaLR(optimizer, factor)
