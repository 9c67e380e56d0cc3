"""Sufficient decrease in the optimizer; `test_slope` has what the search is told of every base."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hotswap import Armijo, FirstDecrease, HotSwapSGD, log_grid
from tests.problems import network

D = torch.float64
RATES = log_grid(1e2, 1e-4, 121)


@pytest.mark.parametrize("slope", [0.1, 0.5, 0.9])
def test_gradient_descent(slope: float) -> None:
    """f(θ) = ½ a θ²: the step takes the largest η ≤ 2 (1 − slope) / a, and tries all that are larger before."""
    for curvature in (0.3, 1.0, 70.0):
        parameter = nn.Parameter(torch.tensor([3.0], dtype=D))
        optimizer = HotSwapSGD([parameter], RATES, search=Armijo(slope))
        optimizer.step(lambda p=parameter, a=curvature: 0.5 * a * p.square().sum())
        record, largest = optimizer.last_step, 2 * (1 - slope) / curvature
        assert record.arm is not None
        assert RATES[record.arm] <= largest * (1 + 1e-9)
        assert record.arm == 0 or RATES[record.arm - 1] > largest * (1 - 1e-9)
        assert [arm for arm, _ in record.trials] == list(range(record.arm + 1))
        assert record.loss_after < record.loss_before


def test_a_momentum_that_points_uphill_is_never_followed_up() -> None:
    """The slope along the step is negative: the rule alone would allow the loss to rise."""
    parameter = nn.Parameter(torch.tensor([1.0], dtype=D))
    optimizer = HotSwapSGD([parameter], [0.5, 0.01], momentum=0.9, search=Armijo())
    optimizer.step(lambda: 0.5 * parameter.square().sum())
    parameter.data.fill_(-0.1)  # beyond the minimum, with a momentum that goes on
    optimizer.step(lambda: 0.5 * parameter.square().sum())
    record = optimizer.last_step
    assert record.arm is None
    assert len(record.trials) == 1  # the sweep is at the second arm
    assert parameter.item() == -0.1


def test_it_asks_for_more_than_any_decrease() -> None:
    """η = 1.9 nearly throws θ to −θ: a decrease by 19 %, of which the slope promised 380 %."""

    def taken(search: Any) -> float:
        parameter = nn.Parameter(torch.tensor([1.0], dtype=D))
        optimizer = HotSwapSGD([parameter], [1.9, 0.9], search=search)
        optimizer.step(lambda: 0.5 * parameter.square().sum())
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
        assert optimizers[0].last_step.arm == optimizers[1].last_step.arm
    torch.testing.assert_close(parameters[0].data, parameters[1].data.cpu(), rtol=1e-9, atol=1e-9)
