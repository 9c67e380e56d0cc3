"""vSGD as an optimizer. Its numbers are those of tests/ensemble/test_vsgd.py."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import hotswap
from hotswap.bench.vsgd import VSGD
from hotswap.errors import ClosureError, SettingError

X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))


def network(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *layers, nn.Linear(6, 1))


def loss_of(model: nn.Module) -> Tensor:
    loss: Tensor = (model(X) - X.sum(1, keepdim=True)).square().mean()
    return loss


def test_it_learns_with_and_without_a_backward_of_ones_own() -> None:
    first, second = network(nn.Tanh()), network(nn.Tanh())
    before = loss_of(first).item()
    plain, own = VSGD(first.parameters()), VSGD(second.parameters())

    def closure() -> Tensor:
        own.zero_grad()
        loss = loss_of(second)
        loss.backward()
        return loss

    for _ in range(200):
        assert plain.step(lambda: loss_of(first)) == own.step(closure)
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert loss_of(first).item() < 0.2 * before


def test_nothing_moves_while_averages_are_begun() -> None:
    model = network()
    optimizer, before = VSGD(model.parameters(), start=3), copy.deepcopy(model.state_dict())
    for moved in (False, False, False, True):
        optimizer.step(lambda: loss_of(model))
        assert moved == any(not torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_both_evaluations_see_the_same_dropout_and_count_once() -> None:
    model = network(nn.BatchNorm1d(6), nn.Dropout(0.5))
    optimizer, seen = VSGD(model.parameters()), []
    model[2].register_forward_hook(lambda _module, entered, left: seen.append((left == 0) & (entered[0] != 0)))
    told = []
    torch.manual_seed(1)
    for _ in range(3):
        optimizer.step(lambda: (told.append(hotswap.in_trial()), loss_of(model))[1])
    after = torch.rand(1)
    assert told == [False, True] * 3
    assert all(torch.equal(*pair) for pair in zip(seen[::2], seen[1::2], strict=True))
    assert not torch.equal(seen[0], seen[2])
    assert model[1].num_batches_tracked == 3
    torch.manual_seed(1)
    for _ in range(3):
        loss_of(model)
    assert torch.equal(after, torch.rand(1))


def test_gradients_are_those_at_the_start_of_the_step() -> None:
    model = network(nn.Tanh())
    optimizer = VSGD(model.parameters(), start=1)
    for _ in range(3):
        there = torch.autograd.grad(loss_of(model), list(model.parameters()))
        optimizer.step(lambda: loss_of(model))
        assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), there, strict=True))


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    model = network()
    unused = nn.Parameter(torch.ones(3))
    optimizer = VSGD([*model.parameters(), unused], start=1)
    for _ in range(3):
        optimizer.step(lambda: loss_of(model))
    assert unused.tolist() == [1, 1, 1]
    assert unused not in optimizer.state


def test_it_goes_on_where_it_was() -> None:
    straight, resumed = network(nn.Tanh()), network(nn.Tanh())
    first, second = VSGD(straight.parameters(), start=4), VSGD(resumed.parameters())
    for _ in range(3):
        first.step(lambda: loss_of(straight))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed.load_state_dict(straight.state_dict())
    for _ in range(6):
        assert first.step(lambda: loss_of(straight)) == second.step(lambda: loss_of(resumed))
    assert torch.equal(straight[0].weight, resumed[0].weight)


def test_an_exception_nearby_changes_nothing() -> None:
    model = network(nn.BatchNorm1d(6))
    optimizer = VSGD(model.parameters(), start=1)

    def closure() -> Tensor:
        if hotswap.in_trial():
            raise KeyError("out of data")
        return loss_of(model)

    before = {name: value.clone() for name, value in model.named_parameters()}
    with pytest.raises(KeyError):
        optimizer.step(closure)
    assert all(torch.equal(before[name], value) for name, value in model.named_parameters())
    assert all(state["step"] == 0 and not state["mean"].any() for state in optimizer.state.values())
    assert model[1].num_batches_tracked == 1  # of the gradient pass, which was whole


def test_refuses() -> None:
    model = network()
    with pytest.raises(SettingError, match=r"VSGD\(start=0\): start must be a whole number of at least 1"):
        VSGD(model.parameters(), start=0)
    with pytest.raises(SettingError, match=r"VSGD\(slow=0.5\): slow must be a finite number of at least 1"):
        VSGD(model.parameters(), slow=0.5)
    with pytest.raises(ClosureError, match="give step"):
        VSGD(model.parameters()).step()
    with pytest.raises(ClosureError, match="no gradient reached any of them"):
        VSGD(model.parameters()).step(lambda: torch.ones((), requires_grad=True) * 1)
