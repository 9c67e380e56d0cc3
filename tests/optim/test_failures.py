"""Whatever goes wrong in a step, and wherever: parameters, gradients and the base's state are as they were."""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hotswap
from hotswap import ClosureError, HotSwap, HotSwapSGD

INF = float("inf")


def parameters(count: int = 2) -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3)) for _ in range(count)]


def test_a_gradient_that_cannot_be_written_to() -> None:
    """The base accepts it, and so do we: what a weight decay adds to it lies elsewhere."""
    a, b = parameters()
    twins = [nn.Parameter(p.detach().clone()) for p in (a, b)]
    base = torch.optim.Adam([{"params": [a]}, {"params": [b]}], lr=0.1, weight_decay=0.1)
    plain = torch.optim.Adam(twins, lr=0.1, weight_decay=0.1)
    optimizer = HotSwap(base, {"lr": [0.1]})
    a.grad, b.grad = torch.ones(3), torch.ones(1).expand(3)
    twins[0].grad, twins[1].grad = torch.ones(3), torch.ones(3)
    optimizer.step(trial_closure=lambda: a.sum() + b.sum() + 50, loss=a.sum() + b.sum() + 50)
    plain.step()
    torch.testing.assert_close([a.detach(), b.detach()], [p.detach() for p in twins])
    assert a.grad.tolist() == b.grad.tolist() == [1.0] * 3


def test_a_gradient_that_two_parameters_share_decays_once() -> None:
    a, b = parameters()
    shared = torch.ones(3)
    a.grad = b.grad = shared
    base = torch.optim.RMSprop([{"params": [a]}, {"params": [b]}], lr=0.01, weight_decay=0.5)
    before = a.detach().clone()
    optimizer = HotSwap(base, {"lr": [0.01]})
    optimizer.step(trial_closure=lambda: a.sum() + b.sum() + 50, loss=a.sum() + b.sum() + 50)
    twin = nn.Parameter(before)
    twin.grad = torch.ones(3)
    torch.optim.RMSprop([twin], lr=0.01, weight_decay=0.5).step()
    torch.testing.assert_close(a.detach(), twin.detach())
    assert shared.tolist() == [1.0] * 3


class Failing(torch.optim.Adam):
    """Steps, and is interrupted right afterwards, when it is its time."""

    left = 10**9

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        Failing.left -= 1
        if Failing.left == 0:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("moment", [1, 2, 3, 4])
def test_an_interrupt_in_the_bases_own_step(moment: int) -> None:
    """In a trial, and in the step that lets its state advance where nothing moved."""
    (a,) = parameters(1)
    before = a.detach().clone()
    optimizer = HotSwap(Failing([a], lr=1.0), {"lr": [30.0, 20.0, 10.0], "eps": [1e-8]})
    Failing.left = moment
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(lambda: torch.sum(a**2))
    assert torch.equal(a.detach(), before)
    assert not optimizer.state


@pytest.mark.parametrize("clip", [{"clip_value": 1.0}, {"clip_norm": 1.0}])
def test_clipping_does_not_hide_an_infinite_gradient(clip: dict[str, float]) -> None:
    a = nn.Parameter(torch.zeros(2))
    optimizer = HotSwapSGD([a], **clip)
    with pytest.raises(ClosureError, match="its gradient is not"):
        optimizer.step(lambda: 5 - a.sqrt().sum())
    assert a.tolist() == [0.0, 0.0]
    assert a.grad is not None
    assert a.grad.tolist() == [-INF, -INF]


def test_a_loss_that_was_computed_before_is_refused() -> None:
    net = nn.Linear(2, 1)
    loss = net(torch.ones(4, 2)).pow(2).mean()
    with pytest.raises(ClosureError, match="a loss that was computed before it was called"):
        HotSwapSGD(net.parameters()).step(lambda: loss)


def test_another_bandit_is_asked_anew() -> None:
    (a,) = parameters(1)
    optimizer = HotSwapSGD([a], lr=[0.1, 0.01, 0.001])

    class Last(hotswap.DiscountedUCB):
        def propose(self, state: Any) -> Any:
            arm, state = super().propose(state)
            return 0 * arm + 2, state

    optimizer.step(lambda: torch.sum(a**2))
    optimizer.bandit = Last()
    optimizer.step(lambda: torch.sum(a**2))
    assert optimizer.last_step.start == 2


def test_minibatches_whose_size_nobody_knows() -> None:
    def loss(_: Any) -> Tensor:
        return torch.zeros(())

    with pytest.raises(ClosureError, match="of type SimpleNamespace holds no tensor"):
        hotswap.accumulate(loss, [SimpleNamespace(x=torch.ones(3))])
    batches = [UserDict(x=torch.ones(3)), UserDict(x=torch.ones(1))]
    assert hotswap.accumulate(loss, batches).weights == [0.75, 0.25]


def test_a_rate_in_a_tensor_stays_the_users() -> None:
    (a,) = parameters(1)
    rate = torch.tensor(0.1)
    optimizer = HotSwap(torch.optim.SGD([a], lr=rate), {"lr": [0.3, 0.1], "momentum": [0.0, 0.9]})
    for _ in range(3):
        optimizer.step(lambda: torch.sum(a**2))
        assert optimizer.param_groups[0]["lr"] is rate
        assert rate == torch.tensor(0.1)


def test_a_bandit_that_fails_to_learn_comes_after_the_step() -> None:
    """Weights and momentum have gone together by then, and stay together."""

    class Broken(hotswap.DiscountedUCB):
        def observe(self, *_: Any, **__: Any) -> Any:
            raise KeyError("broken")

    (a,) = parameters(1)
    before = a.detach().clone()
    optimizer = HotSwapSGD([a], lr=[0.1], momentum=0.9, bandit=Broken())
    with pytest.raises(KeyError, match="broken"):
        optimizer.step(lambda: torch.sum(a**2))
    torch.testing.assert_close(optimizer.state[a]["momentum_buffer"], 2 * before)
    torch.testing.assert_close(a.detach(), before - 0.1 * 2 * before)
