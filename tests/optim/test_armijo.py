"""Sufficient decrease in the optimizer: on a quadratic the largest rate that it may take is known.

With f(θ) = ½ θᵀAθ and a direction d, f(θ − ηd) = f(θ) − η⟨g, d⟩ + ½η² dᵀAd. So the rule, with h for the gradient that
it is told of, holds for η ≤ 2 (⟨g, d⟩ − slope·⟨h, d⟩) / dᵀAd, and for no larger rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hotswap import Armijo, FirstDecrease, HotSwap, HotSwapSGD, log_grid
from hotswap.optim.moves import Exact, GradientMove, LinearMove
from tests.optim.helpers import move_of
from tests.problems import network

D = torch.float64
RATES = log_grid(1e2, 1e-4, 121)
A = torch.tensor([5.0, 1.0, 0.2, 3.0], dtype=D)
START = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=D)


def check_rate(optimizer: HotSwap, slope: float, largest: float, *, rates: tuple[float, ...] = RATES) -> None:
    """The step took the largest rate of its row that the rule allows, and tried all that are larger before."""
    record = optimizer.last_step
    assert record is not None
    assert record.arm is not None
    place = record.arm % len(rates)
    assert rates[place] <= largest * (1 + 1e-9)
    assert place == 0 or rates[place - 1] > largest * (1 - 1e-9)
    assert [arm % len(rates) for arm, _ in record.trials] == list(range(place + 1))
    assert record.loss_after < record.loss_before


@pytest.mark.parametrize("slope", [0.1, 0.5, 0.9])
def test_gradient_descent(slope: float) -> None:
    """f(θ) = ½ a θ²: η ≤ 2 (1 − slope) / a."""
    for curvature in (0.3, 1.0, 70.0):
        parameter = nn.Parameter(torch.tensor([3.0], dtype=D))
        optimizer = HotSwapSGD([parameter], RATES, search=Armijo(slope))
        optimizer.step(lambda p=parameter, a=curvature: 0.5 * a * p.square().sum())
        check_rate(optimizer, slope, 2 * (1 - slope) / curvature)


CASES: dict[str, tuple[type, Callable[[Any], torch.optim.Optimizer], float | None]] = {
    "momentum and decay": (
        GradientMove,
        lambda g: torch.optim.SGD(g, lr=0.5, momentum=0.9, weight_decay=0.1),
        None,
    ),
    "nesterov": (GradientMove, lambda g: torch.optim.SGD(g, lr=0.5, momentum=0.5, nesterov=True), None),
    "adam": (LinearMove, lambda g: torch.optim.Adam(g, lr=0.5), None),
    "adamw": (LinearMove, lambda g: torch.optim.AdamW(g, lr=0.5, weight_decay=0.1), None),
    "clipped": (GradientMove, lambda g: torch.optim.SGD(g, lr=0.5), 0.5),
    "clipped adam": (LinearMove, lambda g: torch.optim.Adam(g, lr=0.5), 0.5),
}


@pytest.mark.parametrize("slope", [0.1, 0.7])
@pytest.mark.parametrize("name", CASES)
def test_the_largest_rate_that_is_allowed(name: str, slope: float) -> None:
    """Over several steps and two groups, the second with a tenth of the first's rate. A plain base beside the
    optimizer, whose state has seen the same gradients, says what the direction is."""
    move, build, clip_norm = CASES[name]
    first, second = nn.Parameter(START[:2].clone()), nn.Parameter(START[2:].clone())
    twins = [nn.Parameter(p.detach().clone()) for p in (first, second)]
    groups, others = ([{"params": [a]}, {"params": [b], "lr": 0.05}] for a, b in ((first, second), twins))
    search = Armijo(slope, headroom=len(RATES))  # every walk begins at the largest rate
    optimizer = HotSwap(build(groups), {"lr": RATES}, search=search, clip_norm=clip_norm)
    assert type(move_of(optimizer)) is move
    plain = build(others)
    for group in plain.param_groups:
        group["lr"] /= 0.5  # the arm's rate is 1
    for _ in range(6):
        before = torch.cat([first.detach(), second.detach()]).clone()
        gradient = A * before
        told = gradient if clip_norm is None else gradient * min(1.0, clip_norm / float(gradient.norm() + 1e-6))
        for twin, own, part in zip(twins, (first, second), told.split(2), strict=True):
            twin.data.copy_(own.data)
            twin.grad = part.clone()
        plain.step()
        direction = before - torch.cat([twin.detach() for twin in twins])
        optimizer.step(lambda: 0.5 * (A * torch.cat([first, second]).square()).sum())
        bend = float((A * direction.square()).sum())
        downhill = float(gradient @ direction) > 0
        largest = 2 * float(gradient @ direction - slope * (told @ direction)) / bend
        if downhill:
            check_rate(optimizer, slope, largest)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_exact_move(momentum: float) -> None:
    """Arms over the rate and the momentum: the second step's direction is g + momentum · b."""
    slope, rates = 0.3, log_grid(1e1, 1e-3, 41)
    parameter = nn.Parameter(START.clone())
    base = torch.optim.SGD([parameter], lr=1.0, momentum=0.5, weight_decay=0.01)
    arms = {"lr": rates, "momentum": [momentum]}
    optimizer = HotSwap(base, arms, search=Armijo(slope, headroom=len(rates)))
    assert type(move_of(optimizer)) is Exact
    buffer = torch.zeros(4, dtype=D)
    for _ in range(4):
        theta = parameter.detach().clone()
        gradient = A * theta
        buffer = momentum * buffer + gradient + 0.01 * theta
        optimizer.step(lambda: 0.5 * (A * parameter.square()).sum())
        promised = float(gradient @ buffer)
        if promised > 0:
            check_rate(optimizer, slope, 2 * (1 - slope) * promised / float((A * buffer.square()).sum()), rates=rates)


def test_a_momentum_that_points_uphill_is_never_followed_up() -> None:
    """The slope along the step is negative: the rule alone would allow the loss to rise."""
    parameter = nn.Parameter(torch.tensor([1.0], dtype=D))
    optimizer = HotSwapSGD([parameter], [0.5, 0.01], momentum=0.9, search=Armijo())
    optimizer.step(lambda: 0.5 * parameter.square().sum())
    parameter.data.fill_(-0.1)  # beyond the minimum, with a momentum that goes on
    optimizer.step(lambda: 0.5 * parameter.square().sum())
    record = optimizer.last_step
    assert record is not None
    assert record.arm is None
    assert len(record.trials) == 1  # the sweep is at the second arm
    assert parameter.item() == -0.1


def test_it_asks_for_more_than_any_decrease() -> None:
    """η = 1.9 nearly throws θ to −θ: a decrease by 19 %, of which the slope promised 380 %."""

    def taken(search: Any) -> float:
        parameter = nn.Parameter(torch.tensor([1.0], dtype=D))
        optimizer = HotSwapSGD([parameter], [1.9, 0.9], search=search)
        optimizer.step(lambda: 0.5 * parameter.square().sum())
        assert optimizer.last_step is not None
        return float(optimizer.last_step.values["lr"])  # type: ignore[arg-type]

    assert taken(FirstDecrease()) == 1.9
    assert taken(Armijo()) == 0.9


@pytest.mark.gpu
def test_a_gpu_takes_the_same_decisions_as_the_cpu() -> None:
    problem = network()
    parameters = [nn.Parameter(torch.from_numpy(problem.theta.copy()).to(device)) for device in ("cpu", "cuda")]
    optimizers = [HotSwapSGD([parameter], momentum=0.5, search=Armijo()) for parameter in parameters]
    for batch in problem.batches:
        for parameter, optimizer in zip(parameters, optimizers, strict=True):
            moved = (batch[0].to(parameter.device), batch[1].to(parameter.device))
            optimizer.step(lambda parameter=parameter, moved=moved: problem.loss(parameter, moved))
        assert optimizers[0].last_step.arm == optimizers[1].last_step.arm  # type: ignore[union-attr]
    torch.testing.assert_close(parameters[0].data, parameters[1].data.cpu(), rtol=1e-9, atol=1e-9)
