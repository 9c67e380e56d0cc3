"""The interface of a workload: a network, minibatches, a training loss, and measures of the trained network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from hotswap.errors import SettingError
from hotswap.registry import Registry, check_class

__all__ = [
    "SIZES",
    "WORKLOADS",
    "Batch",
    "Kind",
    "Measures",
    "Size",
    "Task",
    "Workload",
    "in_bfloat16",
    "in_evaluation",
    "in_parts",
    "judged_by_error",
    "judged_by_loss",
    "minibatches_of",
    "seeded",
]

Size = Literal["smoke", "full"]
"""As large as a test can be, or as the benchmark is."""

SIZES: tuple[Size, ...] = get_args(Size)

Kind = Literal["loss below zero"]
"""A special property of a workload for which some methods have advice."""

Batch = tuple[Tensor, Tensor]


class Measures(NamedTuple):
    """How good a network is, both positive and the smaller the better; evaluated without dropout."""

    train: float
    """On samples that it was trained on."""
    validation: float
    """On samples that it has not seen: the error of a classifier, what the workload says otherwise."""


@dataclass(frozen=True)
class Task:
    """A workload with a seed, on a device, before the first step."""

    model: nn.Module
    steps: int
    """Forward and backward passes that a run may take."""
    minibatches: Callable[[], Iterator[Batch]]
    """An endless row of them, the same every time."""
    loss: Callable[[Batch], Tensor]
    """The training loss of the model on a minibatch, with a graph."""
    measure: Callable[[], Measures]
    """How good the model is now; it is in the same mode afterwards as before."""


class Workload(ABC):
    """A problem to train on. Its parts are fixed: results are comparable as long as its version is the same."""

    name: ClassVar[str] = ""
    title: ClassVar[str]
    """The workload in a few words."""
    measured: ClassVar[str]
    """The name of its validation measure."""
    kinds: ClassVar[frozenset[Kind]] = frozenset()
    """The special properties of the workload."""
    wants_gpu: ClassVar[bool] = False
    """Whether the workload's full size is meant for a GPU."""
    bfloat16_on_gpu: ClassVar[bool] = False
    """Whether the network's products are in bfloat16 on a GPU; on a CPU they are in float32."""
    reads_sources: ClassVar[bool] = False
    """Whether the training data are the sources of the running Python, which differ between releases."""
    data: ClassVar[Mapping[Size, str]] = {}
    """By size, the name of the data set that it loads, if it does: a command sends it to the nodes of a cluster."""
    version: ClassVar[int] = 1

    @abstractmethod
    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """Make the network and the minibatches; `seed` decides first weights and the order of the data."""


def _check(thing: object) -> None:
    check_class(thing, Workload, ("title", "measured"))


WORKLOADS: Registry[type[Workload]] = Registry("workload", "name", _check)
"""All of them, by name."""


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network whose first weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def shuffled(count: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Rows of minibatches, epoch after epoch, each in another order; full minibatches only."""
    numbers = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=numbers)
        yield from order[: count // batch_size * batch_size].view(-1, batch_size)


def minibatches_of(x: Tensor, y: Tensor, batch_size: int, seed: int) -> Iterator[Batch]:
    """Minibatches of samples that lie on a device."""
    for rows in shuffled(len(x), batch_size, seed):
        here = rows.to(x.device)
        yield x[here], y[here]


def in_evaluation(model: nn.Module, measure: Callable[[], Measures]) -> Callable[[], Measures]:
    """The measure, with dropout and batch norm as they are after training."""

    def evaluated() -> Measures:
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                return measure()
        finally:
            model.train(training)

    return evaluated


def in_parts(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, size: int = 1000) -> Tensor:
    """The mean over all samples of what the function gives for each, computed in parts."""
    parts = [function(*part).double().sum() for part in zip(torch.split(x, size), torch.split(y, size), strict=True)]
    return torch.stack(parts).sum() / len(x)


def judged_by_error(
    model: nn.Module,
    steps: int,
    minibatches: Callable[[], Iterator[Batch]],
    train: Batch,
    validation: Batch,
    scores: Callable[[Tensor], Tensor] | None = None,
) -> Task:
    """A classifier, trained by cross entropy. Its measures are the training loss and the validation error.

    `scores` gives the logits that are trained, if they are computed in another way than those that are measured.
    """
    logits: Callable[[Tensor], Tensor] = scores or model

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x).float(), y, reduction="none")

    def wrong(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = model(x)
        return (found.argmax(1) != y).float()

    def measure() -> Measures:
        return Measures(in_parts(loss, *train).item(), in_parts(wrong, *validation).item())

    def trained(batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(logits(batch[0]), batch[1])

    return Task(model, steps, minibatches, trained, in_evaluation(model, measure))


def judged_by_loss(
    model: nn.Module,
    steps: int,
    minibatches: Callable[[], Iterator[Batch]],
    loss: Callable[[Tensor, Tensor], Tensor],
    train: Batch,
    validation: Batch,
    shown: Callable[[Tensor], Tensor] = torch.clone,
) -> Task:
    """A task whose measures are its training loss, on samples that it was trained on and on others.

    `loss` gives the loss of each sample, and `shown` makes a measure of a mean of them.
    """

    def of_each(x: Tensor, y: Tensor) -> Tensor:
        found = loss(x, y)
        if found.shape != (len(x),):
            raise SettingError(
                f"The loss of {len(x)} samples has the shape {tuple(found.shape)}, and must have {(len(x),)}: the loss "
                "of each of them, as reduction='none' gives it, and not their mean."
            )
        return found

    def measure() -> Measures:
        return Measures(*(shown(in_parts(of_each, *samples)).item() for samples in (train, validation)))

    return Task(model, steps, minibatches, lambda batch: of_each(*batch).mean(), in_evaluation(model, measure))


def in_bfloat16(model: nn.Module, device: torch.device | str) -> Callable[[Tensor], Tensor]:
    """The outputs of a model in float32; on a GPU its products are in bfloat16."""
    kind = torch.device(device).type

    def scores(x: Tensor) -> Tensor:
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            found: Tensor = model(x)
        return found.float()

    return scores
