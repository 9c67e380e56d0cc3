"""Lanes of unusual models: each is still the run that would have been trained alone, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.optim import AdamW, Optimizer, SparseAdam

import hotswap
from tests.optim.racing.helpers import ROUNDS, STEPS, contents, same

RATES = (0.03, 0.003, 0.0003)


class Recurrent(nn.Module):
    """Two layers with dropout between them, whose weights lie in one piece on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = nn.LSTM(6, 8, num_layers=2, dropout=0.4, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x[:, None].expand(-1, 4, -1))[0][:, -1])


class Tied(nn.Module):
    """One weight in two places, one that is never used, and one that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight
        self.unused, self.frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x))))) * self.frozen


class Words(nn.Module):
    """Sparse gradients."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3, **settings)

    def forward(self, x: Tensor) -> Tensor:
        return self.table((x[:, 0].abs() * 4).long().clamp(max=9))


class Memory(nn.Module):
    """A buffer that is made in the first forward, and one that changes its size."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("seen", None)
        self.register_buffer("last", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.head(x)
        self.seen = scores.detach().mean(0) if self.seen is None else 0.9 * self.seen + 0.1 * scores.detach().mean(0)
        self.last.resize_(3).copy_(scores.detach()[0])
        return scores - 0.1 * self.seen - 0.1 * self.last


class Autocast(nn.Module):
    """Products in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.net(x).float()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "recurrent": Recurrent,
    "tied": Tied,
    "spectral norm": lambda: nn.Sequential(spectral_norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 3)),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 3)),
    "words with a largest norm": partial(Words, max_norm=1.0),
    "memory": Memory,
    "autocast": Autocast,
    "double": lambda: nn.Sequential(nn.Linear(6, 3)).double(),
}


def minibatches() -> list[tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    made = [torch.randn(16, 6, generator=numbers) for _ in range(STEPS)]
    return [(x, (x[:, :3]).argmax(1)) for x in made]


def compared(build: Callable[[], nn.Module], make: Callable[[Any], Optimizer] = AdamW) -> hotswap.Race:
    torch.manual_seed(0)
    model = build()
    torch.manual_seed(0)
    other = build()
    dtype = next(model.parameters()).dtype
    optimizer = hotswap.Race(make(model.parameters()), {"lr": RATES}, STEPS, rounds=ROUNDS, least=5, module=model)
    torch.manual_seed(7)
    for x, y in minibatches():
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x.to(dtype)), y))
    assert optimizer.winner is not None
    base = make(other.parameters())
    torch.manual_seed(7)
    for step, (x, y) in enumerate(minibatches()):
        base.param_groups[0]["lr"] = optimizer.winner["lr"] * optimizer.schedule.factor(step)  # type: ignore[operator]
        base.zero_grad()
        cross_entropy(other(x.to(dtype)), y).backward()
        base.step()
    assert same(contents(other), contents(model))
    return optimizer


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_the_winner_is_the_run_alone(build: Callable[[], nn.Module]) -> None:
    compared(build)


def test_sparse_gradients() -> None:
    compared(partial(Words, sparse=True), lambda parameters: SparseAdam(list(parameters)))


def test_a_frozen_backbone_outside_of_the_model() -> None:
    """Its batch norm counts each minibatch once, whatever the number of lanes."""
    torch.manual_seed(0)
    backbone, head = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).requires_grad_(False), nn.Linear(6, 3)
    optimizer = hotswap.Race(AdamW(head.parameters()), {"lr": RATES}, STEPS, rounds=ROUNDS, least=5)
    for x, y in minibatches():
        optimizer.step(lambda x=x, y=y: cross_entropy(head(backbone(x)), y))
    assert backbone[1].num_batches_tracked == STEPS


@pytest.mark.parametrize("change", ["thawed", "added"])
def test_parameters_that_are_thawed_or_added_on_the_way(change: str) -> None:
    """All lanes are still the runs alone: what is new begins in each of them as it was on the model."""

    def begin() -> tuple[nn.Sequential, AdamW]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
        model[0].requires_grad_(change == "added")
        return model, AdamW(model[2].parameters() if change == "added" else model.parameters())

    def go_on(model: nn.Sequential, optimizer: Optimizer) -> None:
        if change == "added":
            optimizer.add_param_group({"params": model[0].parameters()})
        else:
            model[0].requires_grad_(True)

    runs: list[list[float]] = []
    for rate in RATES:
        model, base = begin()
        losses = []
        for step, (x, y) in zip(range(10), minibatches(), strict=False):
            if step == 5:
                go_on(model, base)
            for group in base.param_groups:
                group["lr"] = rate
            base.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            base.step()
            losses.append(loss.item())
        runs.append(losses)

    model, base = begin()
    plain = {"warmup": None, "decay": None, "rounds": ROUNDS, "least": 5, "module": model}
    optimizer = hotswap.Race(base, {"lr": RATES}, STEPS, **plain)
    raced: list[list[float]] = [[] for _ in RATES]
    for step, (x, y) in enumerate(minibatches()):
        if step == 5:
            go_on(model, optimizer)
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        assert optimizer.last_step is not None
        if step < 10:
            for number, loss in optimizer.last_step.losses.items():
                raced[number].append(loss)
    assert raced == runs
    assert optimizer.winner is not None


def test_a_compiled_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    compiled = torch.compile(model, backend="eager")
    optimizer = hotswap.Race(AdamW(model.parameters()), {"lr": RATES}, STEPS, rounds=ROUNDS, least=5, module=model)
    losses = []
    for x, y in minibatches():
        optimizer.step(lambda x=x, y=y: cross_entropy(compiled(x), y))
        losses.append(optimizer.last_step.losses)  # type: ignore[union-attr]
    assert len(set(losses[5].values())) == len(RATES)  # lanes are different
    assert losses[-1][optimizer.standings().leader] < losses[0][1] / 2
