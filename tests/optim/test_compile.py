"""A compiled model is compiled twice, with and without gradients, however many trials there are."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn.functional import cross_entropy

from hotswap import HotSwap, HotSwapSGD
from tests.optim.helpers import batches


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(5, 16)
        self.rest = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.rest(self.first(x))
        return scores


@pytest.mark.parametrize("how", ["torch.compile", "module.compile", "a part of it", "the loss"])
@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_no_trial_compiles_again(how: str, base: str) -> None:
    torch.compiler.reset()
    net, twin, counter = Noisy(), Noisy(), CompileCounter()
    call = net
    if how == "torch.compile":
        call = torch.compile(net, backend=counter)  # type: ignore[assignment]
    elif how == "module.compile":
        net.compile(backend=counter)
    elif how == "a part of it":
        net.first = torch.compile(net.first, backend=counter)  # type: ignore[assignment]

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(call(x), y)

    loss = torch.compile(loss_of, backend=counter) if how == "the loss" else loss_of
    made = {"sgd": HotSwapSGD, "adam": lambda p: HotSwap(torch.optim.Adam(p))}[base]
    optimizer, other = made(net.parameters()), made(twin.parameters())
    data = batches(12)
    counts = []
    for x, y in data:
        state = torch.get_rng_state()
        optimizer.step(lambda x=x, y=y: loss(x, y))
        torch.set_rng_state(state)
        other.step(lambda x=x, y=y: cross_entropy(twin(x), y))
        assert optimizer.last_step == other.last_step  # the same decisions and losses as without a compiler
        counts.append(counter.frame_count)
    assert counts[-1] == counts[1]  # nothing after the second step
    assert counts[-1] == 2  # with gradients and without
    for ours, theirs in zip(net.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)
