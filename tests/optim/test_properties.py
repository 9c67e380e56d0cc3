"""What holds for every step, whatever the losses are."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from hotswap import Backtracking, BothWays, DiscountedUCB, FirstDecrease, HotSwap, HotSwapSGD, Search, in_trial
from tests.problems import network

strange = st.sampled_from([math.nan, math.inf, -math.inf, 1e38, 0.0])
trial_losses = st.lists(st.one_of(st.floats(0.0, 2.0), strange), min_size=1, max_size=60)


def bits(parameter: nn.Parameter) -> torch.Tensor:
    return parameter.detach().clone().view(torch.int32)


@pytest.mark.parametrize("base", ["sgd", "momentum", "adam"])
@given(
    losses=trial_losses,
    discount=st.floats(0.05, 1.0),
    search=st.sampled_from([Backtracking(), FirstDecrease(), BothWays()]),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_any_losses(base: str, losses: list[float], discount: float, search: Search) -> None:
    """Trials return made-up losses, finite or not; the start is always 1."""
    parameter = nn.Parameter(torch.tensor([0.1, -3.3e-5, 7e4, 1e-30]))
    arms, bandit = [10.0, 1.0, 0.1, 0.01], DiscountedUCB(discount)
    if base == "adam":
        optimizer = HotSwap(torch.optim.Adam([parameter], lr=0.1), {"lr": arms}, bandit, search)
    else:
        optimizer = HotSwapSGD([parameter], arms, 0.9 if base == "momentum" else 0.0, 0.0, bandit, search)
    optimizer.check_closure = False
    remaining = iter(losses)

    def closure() -> torch.Tensor:
        start = 1.0 + 0.0 * parameter.sum() + (parameter * torch.tensor([1.0, 2.0, -1e3, 1e-8])).sum() * 1e-12
        return torch.tensor(next(remaining)) if in_trial() else start - start.detach() + 1.0

    while True:
        before = bits(parameter)
        try:
            optimizer.step(closure)
        except StopIteration:  # the made-up losses are used up in the middle of a search
            assert torch.equal(bits(parameter), before)
            break
        record = optimizer.last_step
        finite = [loss for _, loss in record.trials if math.isfinite(loss)]
        if record.arm is None:
            assert torch.equal(bits(parameter), before)
            assert all(loss >= 1.0 for loss in finite)
        else:
            assert record.loss_after == min(finite)
            assert record.loss_after < record.loss_before
    statistics = optimizer.statistics()
    assert all(math.isfinite(row.mean) and math.isfinite(row.count) for row in statistics)
    assert not any(math.isnan(row.index) for row in statistics)


class Plain(torch.optim.SGD):
    """A subclass, so the exact path is taken."""


def test_weights_come_back_bit_for_bit_even_from_catastrophic_trials() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    with torch.no_grad():
        net[0].weight[0, 0] = -0.0  # a sign that an arithmetic way back would lose
        net[0].weight[0, 1] = 1e-45
    x = torch.randn(8, 4)
    before = [p.detach().clone().view(torch.int32) for p in net.parameters()]
    for optimizer in (
        HotSwapSGD(net.parameters(), lr=[1e30, 1e20, 1e10]),
        HotSwap(torch.optim.Adam(net.parameters()), {"lr": [1e30, 1e20]}),
        HotSwap(Plain(net.parameters(), lr=1.0), {"lr": [1e30, 1e20]}),
    ):
        for _ in range(5):
            optimizer.step(lambda: net(x).square().mean())
            assert optimizer.last_step.arm is None
        after = [p.detach().clone().view(torch.int32) for p in net.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_parameters_keep_their_type(dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=dtype))
    for optimizer in (HotSwapSGD([parameter]), HotSwap(torch.optim.Adam([parameter]))):
        for _ in range(5):
            optimizer.step(lambda: parameter.square().sum())
    assert parameter.dtype == dtype
    assert parameter.square().sum() < 3


@pytest.mark.gpu
def test_cuda_takes_the_same_decisions_as_the_cpu() -> None:
    problem = network()
    devices = ["cpu", "cuda"]
    parameters = [nn.Parameter(torch.from_numpy(problem.theta.copy()).to(device)) for device in devices]
    optimizers = [HotSwapSGD([parameter]) for parameter in parameters]
    for batch in problem.batches:
        for device, parameter, optimizer in zip(devices, parameters, optimizers, strict=True):
            moved = (batch[0].to(device), batch[1].to(device))
            optimizer.step(lambda parameter=parameter, moved=moved: problem.loss(parameter, moved))
        assert optimizers[0].last_step.arm == optimizers[1].last_step.arm
    torch.testing.assert_close(parameters[0].data, parameters[1].data.cpu(), rtol=1e-9, atol=1e-9)
