"""What the slope lets one expect, compared with a float64 computation from the parameters that the trials saw."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwap, HotSwapSGD, in_trial, log_grid
from hotswap.optim import moves as module
from hotswap.optim.moves import Exact, GradientMove, LinearMove
from tests.optim.helpers import DEVICES, batches, loss_of, model, move_of
from tests.optim.test_moves import BASES, Words, sentences
from tests.searches.searches import Listening

D = torch.float64
FEW = {"lr": log_grid(1.0, 1e-3, 7)}


def listening(make: Callable[[Any], HotSwap]) -> tuple[HotSwap, list[float]]:
    search = Listening(0.9)  # much is asked for, so there are several trials
    optimizer = make(search)
    optimizer.check_closure = False
    return optimizer, search.told


def check_step(
    optimizer: HotSwap,
    told: list[float],
    parameters: list[nn.Parameter],
    loss: Callable[[], Tensor],
    *,
    clip_norm: float | None = None,
    rtol: float = 1e-9,
) -> None:
    """One step: what was expected at each trial is ⟨g, θ − θ′⟩, with θ and θ′ read by the closure itself."""
    seen: list[list[Tensor]] = []

    def closure() -> Tensor:
        if in_trial():
            seen.append([parameter.detach().to(D, copy=True) for parameter in parameters])
        return loss()

    before = [parameter.detach().to(D, copy=True) for parameter in parameters]
    found = torch.autograd.grad(loss(), parameters)
    gradient = [g.to_dense().to(D) for g in found]
    if clip_norm is not None:
        norm = torch.stack([g.square().sum() for g in gradient]).sum().sqrt()
        gradient = [g * min(1.0, clip_norm / (float(norm) + 1e-6)) for g in gradient]
    told.clear()
    optimizer.step(closure)
    expected = [
        sum(float((g * (a - b)).sum()) for g, a, b in zip(gradient, before, there, strict=True)) for there in seen
    ]
    assert len(told) == len(seen) > 0
    assert all(type(number) is float for number in told)
    assert told == pytest.approx(expected, rel=rtol, abs=1e-13)


@pytest.mark.parametrize("linear", [None, False], ids=["fast", "exact"])
@pytest.mark.parametrize("name", BASES)
def test_every_base(name: str, linear: bool | None) -> None:
    """With weight decay and momentum, whatever the base has: over steps, so that its state has a past."""
    net = model(dtype=D)
    parameters = list(net.parameters())
    optimizer, told = listening(lambda search: HotSwap(BASES[name](parameters), FEW, search=search, linear=linear))
    assert (type(move_of(optimizer)) is Exact) == (linear is False)
    for batch in batches(12, dtype=D):
        check_step(optimizer, told, parameters, loss_of(net, batch))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize(
    ("move", "build"),
    [
        (GradientMove, lambda g: torch.optim.SGD(g, lr=0.5, momentum=0.9, weight_decay=0.1)),
        (LinearMove, lambda g: torch.optim.AdamW(g, lr=0.5, weight_decay=0.1)),
        (Exact, lambda g: torch.optim.Adafactor(g, lr=0.5, weight_decay=0.1)),
    ],
    ids=["gradient", "linear", "exact"],
)
def test_groups_with_rates_of_their_own_and_clipping(
    move: type, build: Callable[[Any], torch.optim.Optimizer], clip_norm: float | None, device: str
) -> None:
    net = model(dtype=D).to(device)
    unused, empty = nn.Parameter(torch.ones(3, device=device)), nn.Parameter(torch.zeros(0, dtype=D, device=device))
    more = [] if move is Exact else [empty]  # Adafactor divides by the size
    parameters = [*net.parameters(), *more]
    groups = [
        {"params": list(net[0].parameters())},
        {"params": [*net[2].parameters(), unused, *more], "lr": 0.05, "weight_decay": 0.0},
    ]
    optimizer, told = listening(lambda search: HotSwap(build(groups), FEW, search=search, clip_norm=clip_norm))
    assert type(move_of(optimizer)) is move
    for x, y in batches(8, dtype=D):
        here = (x.to(device), y.to(device))

        def loss(here: tuple[Tensor, Tensor] = here) -> Tensor:
            return loss_of(net, here)() + sum(parameter.sum() for parameter in more)

        check_step(optimizer, told, parameters, loss, clip_norm=clip_norm, rtol=1e-8)


def test_arms_over_the_rate_and_the_momentum() -> None:
    net = model(dtype=D)
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
    arms = {"lr": [1.0, 0.1, 0.01], "momentum": [0.0, 0.9]}
    optimizer, told = listening(lambda search: HotSwap(base, arms, search=search))
    for batch in batches(12, dtype=D):
        check_step(optimizer, told, list(net.parameters()), loss_of(net, batch))


@pytest.mark.parametrize("size", [1e22, 1.0, 1e-22])
@pytest.mark.parametrize("linear", [None, False], ids=["fast", "exact"])
def test_products_neither_overflow_nor_vanish(size: float, linear: bool | None) -> None:
    """The square of the gradient is 1e44 or 1e-44: infinite in float32, or without digits."""
    parameter = nn.Parameter(torch.zeros(4))
    weights = size * torch.tensor([1.0, 2.0, -3.0, 0.5])

    def make(search: Any) -> HotSwap:
        return HotSwap(torch.optim.SGD([parameter], lr=1.0), {"lr": [0.5]}, search=search, linear=linear)

    optimizer, told = listening(make)
    optimizer.step(lambda: parameter @ weights, trial_closure=lambda: torch.tensor(0.5), loss=1.0)
    assert told == [pytest.approx(0.5 * float(weights.double().square().sum()), rel=1e-6)]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize(
    "build",
    [
        lambda p: torch.optim.SGD(p, lr=1.0),
        lambda p: torch.optim.Adagrad(p, lr=1.0),
        lambda p: torch.optim.SparseAdam(p, lr=1.0),
    ],
    ids=["gradient", "linear", "exact"],
)
def test_sparse_gradients(build: Callable[[Any], torch.optim.Optimizer]) -> None:
    tokens, labels = sentences()
    net = Words(sparse=True).to(D)
    parameters = list(net.embed.parameters())
    optimizer, told = listening(lambda search: HotSwap(build(parameters), FEW, search=search))
    for _ in range(5):
        check_step(optimizer, told, parameters, lambda: cross_entropy(net(tokens), labels), rtol=1e-6)


@pytest.mark.parametrize("linear", [None, False], ids=["fast", "exact"])
def test_complex_parameters(linear: bool | None) -> None:
    """f = |z|² has g = 2z, and a rate of 0.1 moves by 0.2 z: ⟨g, θ − θ′⟩ = 0.4 |z|²."""
    parameter = nn.Parameter(torch.tensor([1 + 2j, -0.5j]))

    def make(search: Any) -> HotSwap:
        return HotSwap(torch.optim.SGD([parameter], lr=1.0), {"lr": [0.1]}, search=search, linear=linear)

    optimizer, told = listening(make)
    optimizer.step(lambda: parameter.abs().square().sum())
    assert told == [pytest.approx(0.4 * 5.25, rel=1e-6)]


def test_long_parameters_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    net = model(dtype=D).to(memory_format=torch.contiguous_format)
    net[0].weight.data = net[0].weight.data.t().contiguous().t()  # another order in memory
    optimizer, told = listening(lambda search: HotSwapSGD(net.parameters(), FEW["lr"], 0.9, 0.01, search=search))
    for batch in batches(4, dtype=D):
        check_step(optimizer, told, list(net.parameters()), loss_of(net, batch))


def test_the_slope_is_computed_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[float] = []
    real = module._product
    monkeypatch.setattr(module, "_product", lambda g, v: products.append(1.0) or real(g, v))
    parameter = nn.Parameter(torch.ones(3))
    optimizer, told = listening(lambda search: HotSwapSGD([parameter], [4.0, 2.0, 1.5, 0.5], search=search))
    for number in range(1, 3):
        optimizer.step(lambda: parameter.square().sum())
        assert len(products) == number
    assert len(told) > 3
    plain = HotSwapSGD([parameter], [4.0, 0.5])
    plain.step(lambda: parameter.square().sum() + 1.0)
    assert len(products) == 2  # who does not need it does not pay for it


def test_candidates_that_overflow_promise_nothing() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer, told = listening(
        lambda search: HotSwap(torch.optim.SGD([parameter], lr=1.0), {"lr": [1e38]}, search=search, linear=False)
    )
    optimizer.step(lambda: 1e5 * parameter.sum())
    assert not math.isfinite(told[0])
    assert parameter.tolist() == [1.0, 1.0]
