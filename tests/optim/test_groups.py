"""Parameter groups, schedulers, parameters without gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from hotswap import HotSwap, HotSwapSGD, SettingError, log_grid
from tests.optim.helpers import batches, loss_of, model, same, train, weights


def test_a_groups_rate_is_relative_to_the_first_groups_initial_rate() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    base = torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": [second], "lr": 0.05}])
    optimizer = HotSwap(base, {"lr": [0.2]})
    optimizer.step(lambda: first.square().sum() + second.square().sum())
    assert optimizer.last_step.values == {"lr": 0.2}
    torch.testing.assert_close(first.data, torch.full((2,), 1 - 0.2 * 2.0))
    torch.testing.assert_close(second.data, torch.full((2,), 1 - 0.02 * 2.0))


def test_ratios_hold_for_bases_with_a_displacement() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    base = torch.optim.Adam([{"params": [first]}, {"params": [second], "lr": 1e-4}], lr=1e-3)
    optimizer = HotSwap(base, {"lr": [0.2]})
    optimizer.step(lambda: first.square().sum() + second.square().sum())
    torch.testing.assert_close(first.data, torch.full((2,), 0.8))
    torch.testing.assert_close(second.data, torch.full((2,), 0.98))


def test_a_scale_of_zero_moves_and_teaches_nothing() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters(), momentum=0.9)
    before = weights(net)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: float(t > 0))
    loss = optimizer.step(loss_of(net, batches(1)[0]))
    assert loss.item() > 0
    assert optimizer.last_step.trials == ()
    assert optimizer.last_step.values == {"lr": 0.0}
    assert same(weights(net), before)
    assert {row.count for row in optimizer.statistics()} == {0.0}
    assert len(optimizer.state) == 4  # the momentum has seen the gradient all the same
    schedule.step()
    optimizer.step(loss_of(net, batches(1)[0]))
    assert len(optimizer.last_step.trials) > 0


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adafactor])
def test_parameters_without_gradient_are_left_alone(base: type[torch.optim.Optimizer]) -> None:
    net = model()
    frozen, unused = net[0].weight, nn.Parameter(torch.ones(3))
    frozen.requires_grad_(False)
    optimizer = HotSwap(base([*net.parameters(), unused], lr=0.1), {"lr": log_grid()})  # type: ignore[call-arg]
    kept = frozen.detach().clone()
    train(net, optimizer, batches(40))
    assert torch.equal(frozen, kept)
    assert torch.equal(unused, torch.ones(3))
    assert loss_of(net, batches(1)[0])().item() < 1.0


def test_a_group_added_later_takes_part() -> None:
    net = model()
    optimizer = HotSwapSGD([net[0].weight])
    optimizer.step(loss_of(net, batches(1)[0]))
    optimizer.add_param_group({"params": [net[2].weight], "lr": 0.5})
    assert len(optimizer.base.param_groups) == 2
    before = net[2].weight.detach().clone()
    train(net, optimizer, batches(40))
    assert not torch.equal(net[2].weight, before)


def test_named_parameters_and_groups_are_accepted() -> None:
    net = model()
    HotSwapSGD(net.named_parameters()).step(loss_of(net, batches(1)[0]))
    HotSwapSGD([{"params": net.parameters(), "weight_decay": 0.1}]).step(loss_of(net, batches(1)[0]))


@pytest.mark.parametrize("lr", [0.0, float("nan")])
def test_the_first_groups_rate_must_be_a_scale(lr: float) -> None:
    with pytest.raises(SettingError, match="must be positive and finite, since the rates of all groups are taken"):
        HotSwap(torch.optim.SGD(model().parameters(), lr=lr))


def test_complex_parameters() -> None:
    parameter = nn.Parameter(torch.tensor([1 + 2j, -0.5j]))
    optimizer = HotSwapSGD([parameter], lr=[10.0, 0.1])
    for _ in range(30):
        optimizer.step(lambda: parameter.abs().square().sum() + 1e-3)
    assert parameter.abs().max() < 0.1


def applied(optimizer: HotSwap) -> float:
    return float(optimizer.last_step.values["lr"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "factors"),
    [
        (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch), [1, 0.5, 0.25, 0.125, 0.0625]),
        (lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, total_iters=3), [0.25, 0.5, 0.75, 1, 1]),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 4), [1, 0.853553, 0.5, 0.146447, 0]),
        (lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9), [1, 0.9, 0.81, 0.729, 0.6561]),
        (
            lambda o: lr_scheduler.ChainedScheduler(
                [lr_scheduler.ConstantLR(o, 0.5, total_iters=2), lr_scheduler.ExponentialLR(o, 0.5)]
            ),
            [0.5, 0.25, 0.25, 0.125, 0.0625],
        ),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, 0.5, 1.0, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 2)], [2]
            ),
            [0.5, 0.75, 1, 0.5, 0],
        ),
        (
            lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=6, anneal_strategy="linear", cycle_momentum=False),
            None,
        ),
    ],
    ids=["lambda", "warm-up", "cosine", "multiplicative", "chained", "sequential", "one cycle"],
)
@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_a_scheduler_scales_what_is_applied(make: Any, factors: list[float] | None, base: str) -> None:
    """The scheduler sees and writes the user's lr; the rate applied is the arm's times what it has become."""
    parameter = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    initial = 1.0 if base == "sgd" else 0.4
    if base == "sgd":
        optimizer: HotSwap = HotSwapSGD([parameter], lr=[0.01])
    else:
        optimizer = HotSwap(torch.optim.Adam([parameter], lr=initial), {"lr": [0.01]})
    scheduler = make(optimizer)
    for number in range(5):
        own = optimizer.param_groups[0]["lr"]
        before = parameter.detach().clone()
        optimizer.step(lambda: parameter.square().sum())
        factor = own / initial if factors is None else factors[number]
        assert own == pytest.approx(initial * factor, abs=1e-6)
        assert applied(optimizer) == pytest.approx(0.01 * factor, abs=1e-8)
        if base == "sgd":
            torch.testing.assert_close(parameter.detach(), before * (1 - 0.02 * factor), rtol=1e-6, atol=1e-9)
        scheduler.step()
