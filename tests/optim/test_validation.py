"""One clear sentence for each mistake, and nothing changed by it."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hotswap
from hotswap import (
    CheckpointError,
    ClosureError,
    HotSwap,
    HotSwapError,
    HotSwapSGD,
    HotSwapWarning,
    LossError,
    RelativeReduction,
    SettingError,
    UnsupportedError,
)
from tests.optim.helpers import batches, loss_of, model, same, weights

NET = model()
BATCH = batches(1)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": []}, "there are no parameters; pass the model, or model.parameters()"),
        ({"params": [{"params": []}]}, "there are no parameters; pass model.parameters()"),
        ({"bandit": "ucb"}, r"bandit must be a hotswap\.Bandit object"),
        ({"search": 3}, r"search must be a hotswap\.Search object"),
        ({"reward": 3}, r"reward must be a hotswap\.Reward object"),
        ({"lr": []}, "lr has no values"),
        ({"lr": [0.1, 0.1]}, "duplicate values"),
        ({"lr": [0.1, 0.0]}, "must be positive"),
        ({"lr": [math.inf]}, "must be finite"),
        ({"seed": 1.5}, r"HotSwapSGD\(seed=1\.5\): seed must be a whole number of 64 bits"),
        ({"seed": 2**63}, r"seed must be a whole number of 64 bits"),
        ({"lr": 0.1}, r"lr is what rates there are to choose from, not one of them; leave it out for 33"),
        ({"lr": ["0.1"]}, r"lr has the value '0\.1', which is not a number"),
        ({"lr": "auto"}, r"give those to choose from, such as hotswap\.log_grid\(1, 1e-3, 7\)"),
        ({"momentum": [0.0, 0.9]}, r"momentum must be a number; to swap it too, write HotSwap\("),
        ({"loss_scale": "dynamic"}, "loss_scale must be finite and at least 1"),
        ({"loss_scale": True}, "loss_scale must be finite and at least 1"),
        ({"momentum": -0.1}, r"HotSwapSGD\(momentum=-0\.1\): momentum must be finite and not negative"),
        ({"weight_decay": math.nan}, "weight_decay must be finite and not negative"),
        *(({"params": p}, "pass the model, model.parameters") for p in (None, 3, "ab", [3], nn.Linear, {"params": 3})),
        *(({"params": [group]}, "pass the model, model.parameters") for group in ({"lr": 1}, {"params": 3})),
        ({"params": [{"params": list(NET.parameters())}] * 2}, "some parameters appear in more than one"),
        ({"momentum": torch.ones(2)}, "momentum must be a number"),
        *(({"clip_norm": limit}, "must be positive and finite") for limit in ("a", [1], math.nan)),
        ({"clip_value": "a"}, "must be positive and finite"),
        ({"lr": [10**400]}, "which is not a number"),
        ({"lr": [True]}, "which is not a number"),
        ({"lr": range(1, 100_001)}, "lr has more than 10,000 values"),
        ({"lr": count(1)}, "lr has more than 10,000 values"),
    ],
)
def test_construction(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        HotSwapSGD(**({"params": NET.parameters()} | arguments))
    assert str(caught.value).isprintable()


def test_limits_and_rates_may_be_numbers_of_numpy_and_torch() -> None:
    for limit in (np.float32(0.5), torch.tensor(0.5)):
        assert len(HotSwapSGD(NET, np.array([1.0, 0.1]), clip_norm=limit).arms) == 2
        HotSwapSGD(NET, torch.tensor([1.0, 0.1]), clip_value=limit)


ARMS: list[tuple[type[torch.optim.Optimizer], dict[str, Any], str]] = [
    (torch.optim.Adam, {"lr": [0.1], "betas": [(0.9, 1.5)]}, r"Adam takes no betas=\(0\.9, 1\.5\) \(Invalid beta"),
    (torch.optim.Adam, {"betas": [(0.9,)]}, r"Adam takes no betas=\(0\.9,\)"),
    (torch.optim.Adam, {"betas": [0.9]}, "Adam takes no betas=0.9"),
    (torch.optim.SGD, {"momentum": [0.9, -1.0], "lr": [0.1]}, "SGD takes no momentum=-1.0"),
    (torch.optim.SGD, {"momentum": [(0.9,)]}, r"SGD takes no momentum=\(0\.9,\)"),
    (torch.optim.Adadelta, {"rho": [1.5]}, "Adadelta takes no rho=1.5"),
    (torch.optim.AdamW, {"weight_decay": [-1], "lr": [0.1]}, "AdamW takes no weight_decay=-1"),
    (torch.optim.SGD, {name: range(1, 102) for name in ("lr", "momentum")}, "10,201 arms are more than one bandit can"),
]


@pytest.mark.parametrize(("kind", "arms", "message"), ARMS)
def test_arms_that_the_base_does_not_take(
    kind: type[torch.optim.Optimizer], arms: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        HotSwap(kind(NET.parameters()), arms)


@pytest.mark.parametrize("group", [{}, 3, {"params": 3}])
def test_a_group_that_is_none(group: Any) -> None:
    for optimizer in (HotSwapSGD(NET), hotswap.Race(NET)):
        with pytest.raises(SettingError, match="whose 'params' are a list of parameters"):
            optimizer.add_param_group(group)
        assert sum(len(known["params"]) for known in optimizer.param_groups) == len(list(NET.parameters()))


def no_graph() -> torch.Tensor:
    with torch.no_grad():
        return loss_of(NET, BATCH)()


CLOSURES: list[tuple[Callable[[], Any], type[HotSwapError], str]] = [
    (lambda: None, ClosureError, "must be a scalar tensor, but it is of type NoneType"),
    (lambda: NET(BATCH[0]), ClosureError, r"it has shape \(16, 3\) and type torch.float32; reduce it"),
    (lambda: torch.tensor(3), ClosureError, r"must be a floating-point number, but its type is torch.int64"),
    (lambda: (loss_of(NET, BATCH)(), 1, 2), ClosureError, "returned a tuple of 3"),
    (no_graph, ClosureError, "has no graph, so it has no gradient"),
    (lambda: loss_of(NET, BATCH)().item(), ClosureError, "has no graph"),
    (loss_of(model(), BATCH), ClosureError, "no gradient reached any of them"),
    (lambda: loss_of(NET, BATCH)() - 100, LossError, r"reward=hotswap\.RelativeReduction\(\)"),
    (lambda: loss_of(NET, BATCH)() * math.nan, LossError, "The loss at the start point is nan"),
    (lambda: loss_of(NET, BATCH)() * math.inf, LossError, "The loss at the start point is inf"),
]


@pytest.mark.parametrize(("closure", "error", "message"), CLOSURES, ids=[m for _, _, m in CLOSURES])
def test_closures(closure: Callable[[], Any], error: type[HotSwapError], message: str) -> None:
    optimizer = HotSwapSGD(NET.parameters(), momentum=0.9)
    before = weights(NET)
    with pytest.raises(error, match=message):
        optimizer.step(closure)
    assert same(weights(NET), before)
    assert {row.count for row in optimizer.statistics()} == {0.0}
    assert not any(row.count for row in optimizer.statistics())
    assert not optimizer.state
    assert optimizer.last_step is None


def test_a_trial_that_goes_negative_is_refused_and_undone() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = HotSwapSGD([parameter])
    with pytest.raises(LossError, match="The loss at a trial is -"):
        optimizer.step(parameter.sum)
    assert parameter.item() == 1.0
    assert not any(row.count for row in optimizer.statistics())


def test_the_alternative_reward_takes_negative_losses() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = HotSwapSGD([parameter], reward=RelativeReduction())
    for _ in range(80):
        optimizer.step(lambda: parameter.square().sum() - 5.0)
    assert parameter.abs().max() < 1e-2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trial_closure": lambda: 1.0}, "needs the loss at the start point"),
        ({"trial_closure": lambda: 1.0, "loss": 1.0}, r"no parameter has one in \.grad"),
        ({"loss": 1.0}, "without a trial_closure"),
        ({"closure": lambda: 1.0, "loss": 1.0}, "without a trial_closure"),
        ({"trial_closure": lambda: 1.0, "loss": "x"}, r"step\(loss=\.\.\.\) must be a scalar tensor"),
    ],
)
def test_trial_closures(arguments: dict[str, Any], message: str) -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    if message.startswith("step"):
        loss_of(net, BATCH)().backward()
    before = weights(net)
    with pytest.raises(ClosureError, match=message):
        optimizer.step(**arguments)
    assert same(weights(net), before)


@pytest.mark.parametrize("name", ["closure", "trial_closure"])
def test_a_loss_in_place_of_a_closure(name: str) -> None:
    optimizer = HotSwapSGD(NET.parameters())
    with pytest.raises(ClosureError, match=rf"step\({name}=\.\.\.\) must be a function that computes the loss"):
        optimizer.step(**{name: torch.ones(())})  # type: ignore[call-overload]


def test_arms_need_a_name() -> None:
    with pytest.raises(SettingError, match=r"as in arms=\{'lr': hotswap\.log_grid\(\)\}"):
        HotSwap(torch.optim.SGD(NET.parameters(), lr=1.0), [1, 0.1])  # type: ignore[arg-type]


def test_a_base_that_maximizes() -> None:
    base = torch.optim.SGD(NET.parameters(), lr=0.1, maximize=True)
    with pytest.raises(UnsupportedError, match="has maximize=True and steps to larger ones; leave it out"):
        HotSwap(base)
    optimizer = HotSwapSGD(NET.parameters())
    with pytest.raises(UnsupportedError, match="has maximize=True"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "maximize": True})
    assert len(optimizer.param_groups) == 1


def test_an_output_computed_before_the_step_is_warned_of_once() -> None:
    net = model()
    optimizer, plain = HotSwapSGD(net.parameters()), HotSwapSGD(net.parameters(), lr=[1e-30, 1e-31])
    x, y = BATCH
    before = weights(net)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.step(lambda: nn.functional.cross_entropy(net(x), y))  # nothing moves: there is nothing to see
    output = net(x)
    with pytest.warns(HotSwapWarning, match="All 33 trials had exactly the loss of the start point") as caught:
        optimizer.step(lambda: nn.functional.cross_entropy(output, y))
    assert caught[0].filename == __file__
    assert same(weights(net), before)
    output = net(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step(lambda: nn.functional.cross_entropy(output, y))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda part: (nn.functional.cross_entropy(NET(part[0]), part[1]), 1),
            "came as a tuple; return the loss alone",
        ),
        (lambda part: backwarded(nn.functional.cross_entropy(NET(part[0]), part[1])), "has had its backward already"),
    ],
)
def test_losses_of_minibatches(loss: Callable[[Any], Any], message: str) -> None:
    optimizer = HotSwapSGD(NET.parameters())
    with pytest.raises(ClosureError, match=message):
        optimizer.step(hotswap.accumulate(loss, batches(2)))


def backwarded(loss: torch.Tensor) -> torch.Tensor:
    loss.backward()
    return loss


def test_the_checkpoint_of_another_base() -> None:
    saved = HotSwapSGD(NET.parameters()).state_dict()
    optimizer = HotSwap(torch.optim.Adam(NET.parameters()), {"lr": hotswap.log_grid()})
    with pytest.raises(CheckpointError, match=r"have no betas and no eps, which Adam needs; construct the optimizer"):
        optimizer.load_state_dict(saved)
    optimizer.step(loss_of(NET, BATCH))


def test_a_grad_scaler_is_refused_with_what_to_do_instead() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(net, BATCH)()).backward()
    before = weights(net)
    with pytest.raises(UnsupportedError, match=r"Train in bfloat16 with torch\.autocast"):
        scaler.step(optimizer)
    with pytest.raises(UnsupportedError, match="GradScaler"):
        scaler.step(optimizer, loss_of(net, BATCH))
    scaler.unscale_(optimizer)  # does nothing but divide
    with pytest.raises(UnsupportedError, match="GradScaler"):
        scaler.step(optimizer)
    assert same(weights(net), before)


def test_listing_its_attributes_raises_nothing() -> None:
    """As debuggers do, and Lightning before it clips."""
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    assert dict(inspect.getmembers(optimizer))["_step_supports_amp_scaling"] is False
    assert all(hasattr(optimizer, name) for name in dir(optimizer))
    torch.amp.GradScaler("cpu", enabled=False).step(optimizer, loss_of(net, BATCH))  # which only passes it on
    assert optimizer.last_step is not None


def test_every_exception_is_ours() -> None:
    errors = [value for name in hotswap.errors.__all__ if isinstance(value := getattr(hotswap.errors, name), type)]
    assert all(issubclass(error, HotSwapError) for error in errors)
    drawn = hotswap.errors.__doc__ or ""
    assert all(error.__name__ in drawn for error in errors)


@pytest.mark.parametrize("make", [HotSwapSGD, hotswap.presets.adam])
def test_an_optimizer_in_place_of_the_model(make: Any) -> None:
    base = torch.optim.AdamW(NET.parameters())
    with pytest.raises(
        SettingError, match=r"takes the model or its parameters, and brings .* AdamW write hotswap\.Hot"
    ):
        make(base)
