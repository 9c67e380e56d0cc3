"""Several minibatches as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import HotSwapSGD, accumulate
from tests.optim.helpers import batches, loss_of, model


def test_several_small_minibatches_are_one_large_one() -> None:
    x, y = (torch.cat(parts) for parts in zip(*batches(3, dtype=torch.float64), strict=True))
    cuts = [slice(0, 7), slice(7, 30), slice(30, 48)]  # of different sizes
    one, other = model(dtype=torch.float64), model(dtype=torch.float64)
    whole, parts = HotSwapSGD(one.parameters(), momentum=0.5), HotSwapSGD(other.parameters(), momentum=0.5)
    for _ in range(30):
        a = whole.step(loss_of(one, (x, y)))
        b = parts.step(
            accumulate(lambda batch: cross_entropy(other(batch[0]), batch[1]), [(x[cut], y[cut]) for cut in cuts])
        )
        assert a.item() == pytest.approx(b.item(), rel=1e-12)
        assert whole.last_step.arm == parts.last_step.arm
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_accumulation_needs_the_memory_of_one_minibatch() -> None:
    """No graph of an earlier minibatch is alive when the next one is evaluated."""
    net, alive, most = model(), 0, 0

    class Held(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            nonlocal alive
            alive -= 1
            return gradient

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        scores = net(batch[0])
        return cross_entropy(Held.apply(scores) if torch.is_grad_enabled() else scores, batch[1])

    HotSwapSGD(net.parameters()).step(accumulate(loss, batches(5)))
    assert most == 1


def test_accumulation_with_weights_and_without_minibatches() -> None:
    net = model()
    first, second = batches(2)
    closure = accumulate(lambda batch: loss_of(net, batch)(), [first, second], weights=[1.0, 3.0])
    expected = loss_of(net, first)() + 3 * loss_of(net, second)()
    assert closure().item() == pytest.approx(expected.item())
    with pytest.raises(hotswap.ClosureError, match="there are no minibatches"):
        accumulate(lambda batch: batch, [])
    with pytest.raises(hotswap.ClosureError, match="1 weights for 2 minibatches"):
        accumulate(lambda batch: batch, [first, second], weights=[1.0])
    with pytest.raises(hotswap.SettingError, match="a Sequential exchanges no gradients"):
        accumulate(lambda batch: batch, [first], module=net)
