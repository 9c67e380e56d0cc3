"""The loss scale and clipping."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hotswap
from hotswap import HotSwap, HotSwapSGD
from hotswap.optim import gradients
from tests.optim.helpers import batches, loss_of, model, take


def test_a_loss_scale_saves_gradients_that_float16_would_lose() -> None:
    """A gradient of 1e-9 is zero in float16, but not when the loss was multiplied by 65536 before."""
    for scale, moves in ((None, False), (65536.0, True)):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = HotSwapSGD([parameter], lr=[100.0], loss_scale=scale)

        def closure(parameter: nn.Parameter = parameter) -> Tensor:
            return 1.0 + (parameter.half() * 1.0).float().sum() * 1e-9 * 10

        take(optimizer, closure)
        assert (parameter != 1).all() == moves


def test_a_gradient_that_overflows_is_left_out_and_the_scale_shrinks() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = HotSwapSGD([parameter], momentum=0.9, loss_scale=65536.0)
    optimizer.step(lambda: (parameter.half() * 100).float().sum())
    assert optimizer.last_step.arm is None
    assert optimizer.last_step.trials == ()
    assert (parameter == 1).all()
    assert not optimizer.state
    saved = optimizer.state_dict()
    again = HotSwapSGD([parameter], momentum=0.9, loss_scale=65536.0)
    again.load_state_dict(saved)
    for _ in range(20):
        again.step(lambda: (parameter.half() * 100).float().square().sum())
        if again.last_step is not None and again.last_step.arm is not None:
            break
    else:
        pytest.fail("the scale never became small enough")


def test_the_loss_scale_doubles_after_enough_good_steps_also_across_a_checkpoint() -> None:
    parameter = nn.Parameter(torch.ones(3))

    def build() -> HotSwap:
        optimizer = HotSwapSGD([parameter], lr=[0.1], loss_scale=8.0)
        assert optimizer._loss_scale is not None
        assert optimizer._loss_scale.patience == 2000
        optimizer._loss_scale.patience = 3
        return optimizer

    def scale(optimizer: HotSwap) -> tuple[float, int]:
        assert optimizer._loss_scale is not None
        return optimizer._loss_scale.value, optimizer._loss_scale.good

    optimizer, seen = build(), []
    for _ in range(5):
        take(optimizer, lambda: parameter.square().sum())
        seen.append(scale(optimizer))
    assert seen == [(8.0, 1), (8.0, 2), (16.0, 0), (16.0, 1), (16.0, 2)]
    again = build()
    again.load_state_dict(optimizer.state_dict())
    assert scale(again) == (16.0, 2)
    take(again, lambda: parameter.square().sum())
    assert scale(again) == (32.0, 0)
    take(again, lambda: parameter.square().sum())
    take(again, lambda: parameter.sum() * 1e38)  # times the scale, it overflows
    assert scale(again) == (16.0, 0)
    take(again, lambda: parameter.square().sum())
    assert scale(again) == (16.0, 1)
    copied = copy.deepcopy(again)
    assert scale(copied) == (16.0, 1)


def test_a_loss_scale_needs_the_backward() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters(), loss_scale=1024.0)

    def closure() -> Tensor:
        loss = loss_of(net, batches(1)[0])()
        loss.backward()
        return loss

    with pytest.raises(hotswap.ClosureError, match="With loss_scale the optimizer has to run the backward pass"):
        optimizer.step(closure)
    with pytest.raises(hotswap.SettingError, match=r"loss_scale=0\.5"):
        HotSwapSGD(net.parameters(), loss_scale=0.5)


@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_the_search_walks_along_the_clipped_direction(base: str) -> None:
    def build(**clip: float) -> tuple[nn.Parameter, HotSwap]:
        parameter = nn.Parameter(torch.tensor([3.0, -4.0], dtype=torch.float64))
        if base == "sgd":
            return parameter, HotSwapSGD([parameter], lr=[0.1], **clip)
        return parameter, HotSwap(torch.optim.Adam([parameter], lr=1.0, eps=1.0), {"lr": [0.1]}, **clip)

    for clip, direction in (({"clip_norm": 1.0}, [0.6, -0.8]), ({"clip_value": 2.0}, [2.0, -2.0]), ({}, [6.0, -8.0])):
        parameter, optimizer = build(**clip)
        optimizer.step(lambda parameter=parameter: parameter.square().sum())
        moved = torch.tensor([3.0, -4.0], dtype=torch.float64) - parameter.detach()
        wanted = torch.tensor(direction, dtype=torch.float64)
        if base == "adam":
            wanted = wanted / (wanted.abs() + 1.0)
        torch.testing.assert_close(moved, 0.1 * wanted, rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(parameter.grad, torch.tensor(direction, dtype=torch.float64), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("base", ["sgd", "adam", "exact"])
def test_a_gradient_is_clipped_once_however_many_trials_there_are(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = gradients.clip_grad_norm_

    def counting(*args: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return real(*args)

    monkeypatch.setattr(gradients, "clip_grad_norm_", counting)
    parameter = nn.Parameter(torch.tensor([3.0, -4.0]))
    bases = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "exact": torch.optim.Adafactor}
    optimizer = HotSwap(bases[base]([parameter], lr=1.0), {"lr": [10.0**-k for k in range(-4, 3)]}, clip_norm=1.0)
    trials = 0
    for step in range(1, 10):
        optimizer.step(lambda: parameter.square().sum())
        trials += len(optimizer.last_step.trials)
        assert calls == step
    assert trials > 9
    assert parameter.grad is not None
    assert parameter.grad.norm().item() <= 1.0001


@pytest.mark.parametrize(
    ("clip", "says"),
    [
        ({"clip_norm": 0.0}, r"clip_norm=0\.0"),
        ({"clip_value": float("nan")}, "clip_value=nan"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "choose one of them"),
    ],
)
def test_limits_that_cannot_be_meant(clip: dict[str, float], says: str) -> None:
    with pytest.raises(hotswap.SettingError, match=says):
        HotSwapSGD(model().parameters(), **clip)


def test_a_step_without_a_search_is_clipped_too() -> None:
    parameter = nn.Parameter(torch.tensor([4.0]))
    optimizer = HotSwapSGD([parameter], lr=[1.0], clip_norm=1.0)
    optimizer.step(lambda: parameter.square().sum())
    assert parameter.item() == pytest.approx(3.0, abs=1e-4)
    parameter.grad = torch.tensor([100.0])
    with pytest.warns(hotswap.HotSwapWarning, match="without a closure"):
        optimizer.step()
    assert parameter.item() == pytest.approx(2.0, abs=1e-4)


def test_a_loss_scale_does_not_go_with_gradients_of_ones_own() -> None:
    parameter = nn.Parameter(torch.tensor([4.0]))
    optimizer = HotSwapSGD([parameter], loss_scale=8.0)
    parameter.grad = torch.tensor([1.0])
    with pytest.raises(hotswap.ClosureError, match="brings gradients of its own"):
        optimizer.step(trial_closure=lambda: parameter.square().sum(), loss=16.0)


def test_a_gradient_that_is_not_finite_does_not_reach_the_momentum_while_a_scheduler_is_at_zero() -> None:
    parameter = nn.Parameter(torch.tensor([0.0, 4.0]))
    optimizer = HotSwapSGD([parameter], lr=[0.1], momentum=0.9)
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(hotswap.ClosureError, match="its gradient is not"):
        optimizer.step(lambda: torch.where(parameter > 0, parameter.sqrt(), torch.zeros(())).sum())
    assert not optimizer.state
