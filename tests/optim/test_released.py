"""What is deleted is gone at once: no reference cycle keeps an optimizer, and its copies of the weights, alive.

The garbage collector would find such a cycle some time later, and until then the memory of the device is not free.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import hotswap
from hotswap import HotSwap, HotSwapSGD
from tests.optim.helpers import batches, loss_of, noisy, train


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What torch imports in the first step of a process holds on to that step's frames, and is none of ours."""
    first = noisy()
    train(first, HotSwapSGD(first), batches(1))
    gc.collect()
    gc.disable()
    yield
    gc.enable()


MAKERS: dict[str, Callable[[nn.Module], Any]] = {
    "gradient": lambda net: HotSwapSGD(net, momentum=0.9),
    "found": lambda net: HotSwapSGD(net.parameters()),
    "linear": lambda net: HotSwap(torch.optim.Adam(net.parameters()), module=net),
    "exact": lambda net: HotSwap(torch.optim.SGD(net.parameters(), 0.1), {"lr": [0.1, 0.01], "momentum": [0.0, 0.9]}),
    "seldom": lambda net: HotSwapSGD(net, search_every=3),
    "copied": lambda net: deepcopy(HotSwapSGD(net.parameters())),
}


def tensors() -> int:
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("name", MAKERS)
def test_an_optimizer_is_gone_when_it_is_deleted(name: str) -> None:
    net = noisy()
    before = tensors()
    optimizer = MAKERS[name](net)
    if name != "copied":  # of a copy the parameters are nobody's
        train(net, optimizer, batches(8))
    parts: list[Any] = [optimizer, optimizer.base, optimizer._trials, optimizer._trials.move]
    living = [weakref.ref(part) for part in parts]
    assert tensors() > before
    parts.clear()
    del optimizer
    for parameter in net.parameters():
        parameter.grad = None
    assert [type(ref()).__name__ for ref in living if ref() is not None] == []
    assert tensors() == before


def test_one_that_has_raised_is_gone_too() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net)

    def fail() -> Tensor:
        raise KeyError("no such minibatch")

    with pytest.raises(KeyError):
        optimizer.step(fail)
    living: weakref.ref[Optimizer] = weakref.ref(optimizer)
    del optimizer
    assert living() is None


def test_a_closure_that_raises_at_a_trial_is_not_kept() -> None:
    net, batch = noisy(), batches(1)[0]
    optimizer = HotSwapSGD(net, [1.0, 0.1], check_closure=False)

    class Loss:
        def __call__(self) -> Tensor:
            if hotswap.in_trial() and not self.seen:
                self.seen = True
                raise ValueError("too large")
            return loss_of(net, batch)()

        seen = False

    closure = Loss()
    with pytest.warns(hotswap.HotSwapWarning, match="too large"):
        optimizer.step(closure)
    living = weakref.ref(closure)
    del closure
    assert living() is None
