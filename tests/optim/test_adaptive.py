"""Around Adam and its kin: which rates there are by default, and a word where the largest does not help."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import pytorch_optimizer
import torch
from torch import Tensor, nn

from hotswap import HotSwap, HotSwapSGD, HotSwapWarning, log_grid
from hotswap.optim.adaptive import WINDOW
from tests.optim.helpers import batches, model, train

SAFE, PAPER = log_grid(1e-2, 1e-6, 17), log_grid()


@pytest.mark.parametrize(
    ("make", "rates"),
    [
        (torch.optim.Adam, SAFE),
        (torch.optim.AdamW, SAFE),
        (torch.optim.NAdam, SAFE),
        (torch.optim.RAdam, SAFE),
        (torch.optim.Adamax, SAFE),
        (torch.optim.RMSprop, SAFE),
        (torch.optim.Adafactor, SAFE),
        (pytorch_optimizer.StableAdamW, SAFE),
        (torch.optim.SGD, PAPER),
        (torch.optim.Adagrad, PAPER),
        (torch.optim.Adadelta, PAPER),
    ],
)
def test_the_rates_that_there_are_by_default(make: Callable[..., Any], rates: tuple[float, ...]) -> None:
    assert HotSwap(make(model().parameters())).arms.axes == (rates,)


def test_what_the_user_says_is_not_changed() -> None:
    assert HotSwap(torch.optim.Adam(model().parameters()), {"lr": PAPER}).arms.axes == (PAPER,)


class Spoiling:
    """A loss that each step lowers on its own minibatch, whatever its rate, and that is as high at the next one."""

    def __init__(self, falls: float = 0.0) -> None:
        self.parameter, self.target, self.falls = nn.Parameter(torch.zeros(1)), 0.0, falls
        self.floor = 10.0

    def __call__(self) -> Tensor:
        return (self.parameter - self.target).abs().sum() + self.floor

    def step(self, optimizer: HotSwap) -> None:
        self.target = float(self.parameter.detach()) + 1.0
        self.floor -= self.falls
        optimizer.step(self)


def told(optimizer: HotSwap, problem: Spoiling, steps: int) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(steps):
            problem.step(optimizer)
    return [str(warning.message) for warning in seen if issubclass(warning.category, HotSwapWarning)]


def test_a_rate_that_sits_at_the_top_while_the_loss_does_not_fall_is_warned_of_once() -> None:
    problem = Spoiling()
    optimizer = HotSwap(torch.optim.Adam([problem.parameter]), {"lr": [1e-1, 1e-9]})
    first = told(optimizer, problem, 2 * WINDOW - 1)
    assert first == []
    (said,) = told(optimizer, problem, 3 * WINDOW)
    assert "sat at the top of its grid, lr=0.1, for 200 steps" in said


@pytest.mark.parametrize("why", ["it falls", "not at the top", "not of Adam's kin", "one rate"])
def test_nothing_is_said_where_nothing_is_wrong(why: str) -> None:
    problem = Spoiling(falls=1e-3 if why == "it falls" else 0.0)
    make = torch.optim.SGD if why == "not of Adam's kin" else torch.optim.Adam
    rates = {"not at the top": [1e2, 1e-1], "one rate": [1e-1]}.get(why, [1e-1, 1e-9])
    optimizer = HotSwap(make([problem.parameter], lr=1.0), {"lr": rates})
    assert told(optimizer, problem, 4 * WINDOW) == []


def test_a_copy_looks_for_itself() -> None:
    net = model()
    optimizer = HotSwap(torch.optim.Adam(net.parameters()))
    twin = copy.deepcopy(optimizer)
    train(net, optimizer, batches(3))
    assert optimizer._memory.top is not None
    assert twin._memory.top is not None
    assert (optimizer._memory.top.steps, twin._memory.top.steps) == (3, 0)
    assert HotSwapSGD(net)._memory.top is None
