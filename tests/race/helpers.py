"""Small models and loops on which races are tested."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from hotswap.race.snapshots import parameters_of

CLASSES = 4
Batch = tuple[Tensor, Tensor]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def with_dropout_and_norm() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 5, 2, padding=1),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(60, CLASSES),
    )


class Tied(nn.Module):
    """An embedding whose weights are those of the head, and a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, CLASSES)
        self.net = nn.LSTM(CLASSES, CLASSES, batch_first=True)
        self.head = nn.Linear(CLASSES, 8, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(self.embed((x * 2).long().clamp(0, 7)))[0][:, -1])


class Complex(nn.Module):
    """A complex parameter beside real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(6, 6, dtype=torch.complex64) / 3)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x.to(torch.complex64) @ self.turn).abs())


class Growing(nn.Module):
    """A buffer that is not persistent and gets longer, as caches do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()
        self.register_buffer("seen", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled() and len(self.seen) < 9:
            self.seen = torch.cat([self.seen, x.detach().mean()[None]])
        return self.net(x)


def parametrized() -> nn.Module:
    return nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)),
        nn.Tanh(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, CLASSES)),
    )


def half_frozen() -> nn.Module:
    model = perceptron()
    next(model.parameters()).requires_grad_(False)
    return model


def low_precision() -> nn.Module:
    return perceptron().to(torch.bfloat16)


class Sparse(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 6, sparse=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed((x * 2).long().clamp(0, 7)).mean(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": perceptron,
    "dropout and batch norm": with_dropout_and_norm,
    "tied, recurrent": Tied,
    "complex": Complex,
    "growing buffer": Growing,
    "parametrized": parametrized,
    "half frozen": half_frozen,
    "low precision": low_precision,
    "sparse": Sparse,
}


def made(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build()


def three(model: nn.Module) -> list[Optimizer]:
    """Lanes of three kinds; AdamW takes no sparse gradients."""
    if isinstance(model, Sparse):
        return [SGD(model.parameters(), lr=0.1), SGD(model.parameters(), lr=0.3), hotswap.Muon(model, lr=0.01)]
    trained = [p for p in model.parameters() if p.requires_grad]
    return [AdamW(trained, lr=0.01), SGD(trained, lr=0.1, momentum=0.9), hotswap.Muon(model, lr=0.01)]


def two(model: nn.Module, *, turned: bool = False) -> list[Optimizer]:
    """Lanes of two kinds; `turned`: with their parameters in the other order."""
    trained = list(model.parameters())[:: -1 if turned else 1]
    return [AdamW(trained, lr=0.01), SGD(trained, lr=0.1)]


def minibatches(count: int, seed: int = 1) -> list[Batch]:
    numbers = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        x = torch.randn(8, 6, generator=numbers)
        found.append((x, x[:, :CLASSES].argmax(1)))
    return found


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    weight = next(p for p in model.parameters() if p.is_floating_point())
    return cross_entropy(model(batch[0].to(weight.dtype)).float(), batch[1])


def step(model: nn.Module, race: Any, batch: Batch) -> Tensor:
    loss = loss_of(model, batch)
    loss.backward()
    race.step(loss)
    race.zero_grad()
    return loss.detach()


def tensors_of(model: nn.Module, race: hotswap.Race) -> Iterator[Tensor]:
    """Everything that a step changes."""
    yield from (value.clone() for value in [*model.parameters(), *model.buffers()])
    for lane in race._contest.lanes:
        for p in parameters_of(lane.optimizer):
            yield from (v.clone() for v in lane.optimizer.state.get(p, {}).values() if isinstance(v, Tensor))


def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)
    )


def through_a_file(state: Any) -> Any:
    """A checkpoint as it comes back from a file, read without pickle's dangers."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def copied(model: nn.Module, race: hotswap.Race) -> tuple[nn.Module, hotswap.Race]:
    return copy.deepcopy((model, race))
