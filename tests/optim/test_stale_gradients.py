"""Gradients that are in `.grad` before a step: used before, or put there by others."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

import hotswap
from hotswap import HotSwapSGD
from tests.optim.helpers import batches, loss_of, model, same, weights


def backward_in(net: torch.nn.Module, batch: Any, clear: Any = lambda: None) -> Any:
    """A closure in torch's style."""

    def closure() -> torch.Tensor:
        clear()
        loss = loss_of(net, batch)()
        loss.backward()
        return loss

    return closure


@pytest.mark.filterwarnings("ignore::hotswap.HotSwapWarning")
@pytest.mark.parametrize("steps", [0, 3])
def test_a_backward_on_top_of_others_is_refused(steps: int) -> None:
    """It is the last of several minibatches, and the others would be lost."""
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    for batch in batches(steps):
        optimizer.step(backward_in(net, batch))  # what a step leaves is nobody's
    first, second = batches(2, seed=1)
    net.zero_grad()  # the new gradients may well be where the old ones were in memory
    loss_of(net, first)().backward()
    before = weights(net)
    with pytest.raises(hotswap.UnsupportedError, match=r"give all of them to one step with hotswap\.accumulate"):
        optimizer.step(backward_in(net, second))
    assert same(weights(net), before)
    optimizer.zero_grad()
    optimizer.step(backward_in(net, second))


@pytest.mark.filterwarnings("ignore::hotswap.HotSwapWarning")
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("before", ["its own backward", "forward only", "no closure"])
def test_a_backward_on_top_of_what_was_left_and_added_to_is_refused(before: str, clear: bool) -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    first, second = batches(2)
    if before == "no closure":
        optimizer.step(loss_of(net, first))
        optimizer.zero_grad()
        loss_of(net, first)().backward()
        optimizer.step()
    else:
        optimizer.step(backward_in(net, first) if before == "its own backward" else loss_of(net, first))
    if clear:
        optimizer.zero_grad()
    loss_of(net, first)().backward()  # into the same tensors
    with pytest.raises(hotswap.UnsupportedError, match="on top of gradients that were accumulated"):
        optimizer.step(backward_in(net, second))


@pytest.mark.filterwarnings("ignore::hotswap.HotSwapWarning")
@pytest.mark.parametrize("clear", ["optimizer", "module", "in place", "module in place", "forward", "forward in place"])
def test_others_gradients_do_no_harm_where_the_closure_clears_them(clear: str) -> None:
    """As with the two networks of a GAN, where each one's backward reaches into the other."""
    ours, theirs = model(), model()
    plain, disturbed = HotSwapSGD(ours.parameters()), HotSwapSGD(theirs.parameters())
    clears = {
        "optimizer": disturbed.zero_grad,
        "module": theirs.zero_grad,
        "in place": lambda: disturbed.zero_grad(set_to_none=False),
        "module in place": lambda: theirs.zero_grad(set_to_none=False),
        "forward": lambda: None,
        "forward in place": lambda: disturbed.zero_grad(set_to_none=False),
    }
    (other, *rest) = batches(20)
    for batch in rest:
        plain.step(loss_of(ours, batch))
        loss_of(theirs, other)().backward()
        if clear.startswith("forward"):
            disturbed.step(lambda batch=batch: (clears[clear](), loss_of(theirs, batch)())[1])
        else:
            disturbed.step(backward_in(theirs, batch, clears[clear]))
    assert same(weights(ours), weights(theirs))


@pytest.mark.filterwarnings("ignore::hotswap.HotSwapWarning")
def test_gradients_of_a_step_are_not_kept_alive() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    optimizer.step(backward_in(net, batches(1)[0]))
    gradient = weakref.ref(net[0].weight.grad)
    net.zero_grad()
    assert gradient() is None
