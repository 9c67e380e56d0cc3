"""Which modules a step looks after, found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import HotSwap, HotSwapSGD
from hotswap.optim import modules
from tests.optim.helpers import batches, noisy


def test_a_module_without_parameters_of_ours_is_named() -> None:
    first, second = noisy(), nn.BatchNorm1d(3, affine=False)
    optimizer = HotSwapSGD(first.parameters(), module=second)
    (x, y), *_ = batches(1)
    for _ in range(3):
        optimizer.step(lambda: cross_entropy(second(first(x)), y))
    assert second.num_batches_tracked == 3
    assert first[1].num_batches_tracked == 3
    with pytest.raises(hotswap.SettingError, match=r"HotSwapSGD\(module=3\): module must be a torch.nn.Module"):
        HotSwapSGD(first.parameters(), module=3)  # type: ignore[arg-type]


def test_modules_are_found_around_and_inside_and_when_parameters_come_later() -> None:
    inner, outer = noisy(), nn.Sequential(nn.BatchNorm1d(5))
    outer.append(inner)
    late = nn.Sequential(nn.BatchNorm1d(3))
    optimizer = HotSwapSGD(inner[5].parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(outer(x), y))
    assert outer[0].num_batches_tracked == inner[4].num_batches_tracked == 1
    optimizer.add_param_group({"params": list(late.parameters())})
    optimizer.step(lambda: cross_entropy(late(outer.forward(x)), y))
    assert outer[0].num_batches_tracked == 2
    assert late[0].num_batches_tracked == 1


@pytest.mark.parametrize("way", ["sequential", "attribute", "wrapper of a wrapper"])
def test_a_wrapper_built_after_the_first_step_is_found(way: str) -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    norm, outer = nn.BatchNorm1d(5), nn.Module()
    if way == "attribute":
        outer.inner = net
    else:
        outer.inner = nn.Sequential(net)
    outer.norm = norm
    for _ in range(3):
        optimizer.step(lambda: cross_entropy(outer.inner(norm(x)), y))
    if way == "wrapper of a wrapper":
        around = nn.Sequential(nn.BatchNorm1d(5, affine=False), outer)
        optimizer.step(lambda: cross_entropy(outer.inner(norm(around[0](x))), y))
        assert around[0].num_batches_tracked == 1
    assert norm.num_batches_tracked == 3 + (way == "wrapper of a wrapper")
    assert net[1].num_batches_tracked == 4 + (way == "wrapper of a wrapper")


def test_modules_are_found_also_after_a_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who forks workers often freezes what is there before."""
    monkeypatch.setattr(modules, "gc", gc)
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    gc.freeze()
    try:
        optimizer.step(lambda: cross_entropy(net(x), y))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert net[1].num_batches_tracked == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_layers": 2, "dropout": 0.5}, True),
        ({"num_layers": 1}, False),
        ({"num_layers": 2, "dropout": 0.0}, False),
    ],
)
def test_who_draws_from_cudnns_generator(settings: dict[str, float], expected: bool) -> None:
    lstm = nn.LSTM(5, 4, **settings)  # type: ignore[arg-type]
    assert not modules._draws_privately(lstm)  # on a CPU nobody does
    lstm._flat_weights = [SimpleNamespace(is_cuda=True), None]  # type: ignore[list-item]
    assert modules._draws_privately(lstm) == expected
    lstm.training = False
    assert not modules._draws_privately(lstm)


def test_a_module_that_was_exchanged_is_looked_after() -> None:
    """By assignment, and past torch's own door."""
    net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16, affine=False), nn.Linear(16, 3))
    optimizer = HotSwapSGD(net.parameters())
    doors = (None, net.__setitem__, lambda at, new: net._modules.update({str(at): new}))
    for (x, y), put in zip(batches(3), doors, strict=True):
        if put is not None:
            put(1, nn.BatchNorm1d(16, affine=False))
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert net[1].num_batches_tracked == 1


def tracked(norm: nn.Module, optimizer: HotSwap, output: Callable[[Tensor], Tensor]) -> int:
    """By how much a step lets a batch norm's count advance."""
    (x, y), *_ = batches(1)
    before = int(norm.num_batches_tracked)
    optimizer.step(lambda: cross_entropy(output(x), y))
    return int(norm.num_batches_tracked) - before


def test_modules_are_found_when_they_are_taken_out_wrapped_or_share_a_weight() -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    outer, norm = nn.Sequential(net), nn.BatchNorm1d(5, affine=False)
    optimizer = HotSwapSGD(net.parameters())
    assert tracked(net[1], optimizer, outer) == 1
    del outer[0]
    assert tracked(net[1], optimizer, net) == 1
    around = nn.Sequential(net[0], norm)  # around something inside
    assert tracked(norm, optimizer, lambda x: net[2](around(x))) == 1
    other = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, affine=False))
    other[0].weight = net[0].weight
    assert tracked(other[1], optimizer, lambda x: net[2](other(x))) == 1


class MadeLate(nn.Module):
    """Makes a module and a buffer when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.norm: nn.Module | None = None
        self.found: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.found.append(hasattr(self, "scale"))
        if self.norm is None:
            self.norm = nn.BatchNorm1d(3, affine=False)
        if not hasattr(self, "scale"):
            self.register_buffer("scale", torch.tensor(2.0))
        return self.norm(self.linear(x)) * self.scale


def test_what_the_first_forward_makes_is_looked_after() -> None:
    net = MadeLate()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert net.norm is not None
    assert net.norm.num_batches_tracked == 1
    assert net.found == [False] * len(net.found)
    assert net.scale == 2


def test_a_leaf_that_gets_a_module_is_looked_into() -> None:
    """Without torch being told."""
    net = nn.Sequential(nn.Linear(5, 8), nn.Identity(), nn.Linear(8, 3))
    optimizer = HotSwapSGD(net.parameters())
    late = nn.BatchNorm1d(8, affine=False)
    for number, (x, y) in enumerate(batches(4)):
        if number == 2:
            net[1]._modules["late"] = late
        optimizer.step(lambda x=x, y=y, on=number >= 2: cross_entropy(net[2](late(net[0](x)) if on else net[0](x)), y))
    assert late.num_batches_tracked == 2


def test_a_scripted_module() -> None:
    net = torch.jit.script(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert dict(net.named_buffers())["1.num_batches_tracked"] == number


def test_a_wrapper_that_was_dropped_is_let_go() -> None:
    net, teacher = nn.Sequential(nn.Linear(5, 3)), nn.Linear(5, 3)
    wrapper = nn.ModuleList([net, teacher])
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    gone = weakref.ref(wrapper), weakref.ref(teacher)
    del wrapper, teacher
    gc.collect()
    optimizer.step(lambda: cross_entropy(net(x), y))
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_module_made_in_the_first_of_several_gradient_passes_keeps_its_buffers() -> None:
    net = MadeLate()
    optimizer = HotSwapSGD(net.parameters())
    losses = []
    for x, y in (both := batches(2)):
        with optimizer.gradient_pass():
            losses.append(cross_entropy(net(x), y) / 2)
            losses[-1].backward()
    optimizer.step(trial_closure=lambda: sum(cross_entropy(net(x), y) / 2 for x, y in both), loss=sum(losses))
    assert net.norm is not None
    assert net.norm.num_batches_tracked == 2
