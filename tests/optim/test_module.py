"""Saying whose buffers matter: `HotSwapSGD(model)` and `HotSwap(base, module=model)`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwap, HotSwapSGD, HotSwapWarning
from hotswap.optim import modules
from tests.optim.helpers import advance, batches, noisy, same, train, weights

WAYS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "the model in place of parameters": HotSwapSGD,
    "parameters and the model": lambda net: HotSwapSGD(net.parameters(), module=net),
    "a base and the model": lambda net: HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), module=net),
}


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        pytest.fail("modules were searched for by the parameters that they hold")

    monkeypatch.setattr(modules, "roots_of", refuse)


@pytest.mark.parametrize("way", WAYS)
def test_a_frozen_part_outside_of_the_model_advances_once_per_step(way: str) -> None:
    backbone = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    head = noisy()
    advance(WAYS[way](head), lambda x: head(backbone(x)), backbone[1], steps=5)


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_is_named_is_not_searched_for_and_a_wrapper_around_it_is_noticed(way: str) -> None:
    net, head = noisy(), nn.BatchNorm1d(3, affine=False)
    optimizer = WAYS[way](net)
    advance(optimizer, net, net[1], steps=5)
    whole = nn.Sequential(net, head)
    advance(optimizer, whole, head, net[1], steps=2)


def test_steps_are_those_of_parameters_alone() -> None:
    ends = []
    for build in (*WAYS.values(), lambda net: HotSwapSGD(net.parameters())):
        net = noisy()
        optimizer = build(net)
        torch.manual_seed(1)
        train(net, optimizer, batches(20))
        ends.append([*weights(net), *net.buffers(), torch.get_rng_state()])
    assert all(same(end, ends[-1]) for end in ends)


def test_a_model_that_holds_some_parameters_is_looked_after_beside_what_is_found() -> None:
    one, other = noisy(), nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    optimizer = HotSwapSGD([*one.parameters(), *other.parameters()], module=one)
    advance(optimizer, lambda x: one(x) + other(x), one[1], other[0], steps=5)


def test_a_parameter_that_is_taken_out_of_the_model_is_searched_for() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net)
    advance(optimizer, net, net[1])
    outside = nn.Sequential(nn.BatchNorm1d(16), net[5])
    net[5] = nn.Identity()
    advance(optimizer, lambda x: outside(net(x)), outside[0], net[1])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_the_switch_for_checking_closures_goes_into_copies(copied: Callable[[Any], Any]) -> None:
    net = noisy()
    optimizer = HotSwapSGD(net, check_closure=False)
    net, optimizer = copied((net, optimizer))
    assert not optimizer.check_closure
    evaluated = 0
    (x, y), *_ = batches(1)

    def closure() -> torch.Tensor:
        nonlocal evaluated
        evaluated += 1
        return cross_entropy(net(x), y) + evaluated  # another loss every time

    optimizer.step(closure)
    assert evaluated == 1 + len(optimizer.last_step.trials)
    optimizer = HotSwapSGD(net)
    evaluated = 0
    with pytest.warns(HotSwapWarning, match="at the same parameters"):
        optimizer.step(closure)
    assert evaluated == 2 + len(optimizer.last_step.trials)
