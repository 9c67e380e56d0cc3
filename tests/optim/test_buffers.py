"""Buffers of every kind: a step leaves them as one forward would have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwapSGD
from hotswap.errors import UnsupportedError
from tests.optim.helpers import advance, batches


class Counting(nn.Module):
    """Puts a new tensor in a buffer's place at every forward, and lets it decide the output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.calls.item())
        self.calls = self.calls + 1
        return self.linear(x) * (1 + self.calls)


def test_a_buffer_that_is_replaced_and_that_matters() -> None:
    net = Counting()
    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3)):
        net.seen.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert set(net.seen) == {float(number)}
        assert net.calls.item() == number + 1


def test_buffers_that_nobody_writes_to_are_left_alone() -> None:
    """An expanded one could not be written to, and a large table is not worth a copy at every step."""
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("mask", torch.ones(1).expand(3))
    net.register_buffer("table", torch.ones(2**18 + 1))
    optimizer = HotSwapSGD(net.parameters())
    free = torch.ones(2**18 + 1, requires_grad=True)
    saved = (net.table * free).square().sum()
    version = net.table._version
    for x, y in batches(3):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x) * net.mask * net.table[:3], y))
    assert net.table._version == version
    saved.backward()


class Late(nn.Module):
    """A buffer that is None until the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("seen", None)
        self.found: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.found.append(self.seen is None)
        self.seen = torch.ones(()) if self.seen is None else self.seen + 1
        return self.linear(x) * self.seen


def test_a_buffer_that_was_not_there_is_not_there_for_trials() -> None:
    net = Late()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert all(net.found)
    assert net.seen == 1


def test_a_buffer_of_another_size_is_copied_again() -> None:
    """In the same tensor: who grows a table in place does so."""
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("seen", torch.zeros(1))

    def closure(x: Tensor, y: Tensor) -> Tensor:
        net.seen += 1
        return cross_entropy(net(x) * net.seen.sum(), y)

    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3), start=1):
        net.seen.resize_(number).fill_(0)
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert net.seen.tolist() == [1.0] * number


def test_a_buffer_gets_its_first_values_in_a_step() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.LazyBatchNorm1d(affine=False), nn.Linear(8, 3))
    advance(HotSwapSGD(net.parameters()), net, net[1], steps=3)


@pytest.mark.parametrize("size", [3, 2**18 + 1])
def test_a_buffer_that_is_written_to_behind_torchs_back(size: int) -> None:
    """Through `.data` no version counts."""
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("table", torch.zeros(size))
    optimizer = HotSwapSGD(net.parameters())

    def closure(x: Tensor, y: Tensor) -> Tensor:
        net.table.data.add_(1)
        return cross_entropy(net(x) + net.table[:3], y)

    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert net.table.eq(number).all()


def test_buffers_that_nobody_can_write_to() -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("scale", torch.zeros(1))
    net.register_buffer("wide", net.scale.expand(3))
    with torch.inference_mode():
        net.register_buffer("fixed", torch.ones(3))
    optimizer = HotSwapSGD(net.parameters())

    def closure(x: Tensor, y: Tensor) -> Tensor:
        net.scale.add_(1)
        return cross_entropy(net(x) * net.wide + net.fixed, y)

    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert net.wide.tolist() == [float(number)] * 3


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_buffer_is_refused_every_time(layout: torch.layout) -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("ragged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    before = net[0].weight.detach().clone()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"The buffer 'ragged' is a nested tensor, of which no copy can be"):
            optimizer.step(lambda: cross_entropy(net(x), y))
    assert torch.equal(net[0].weight, before)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_buffer_that_a_forward_makes_harms_no_other() -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("mask", torch.full((2**19,), 2.0))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    net.register_buffer("mask", torch.full((2**19,), 3.0))  # another one
    net.register_buffer("small", torch.full((2,), 4.0))

    def closure() -> Tensor:
        net.register_buffer("ragged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        return cross_entropy(net(x), y)

    with pytest.raises(UnsupportedError, match="'ragged' is a nested tensor"):
        optimizer.step(closure)
    assert net.mask.eq(3).all()
    assert net.small.eq(4).all()
    del net.ragged
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert net.mask.eq(3).all()
