"""Which modules a step looks after, found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import HotSwapSGD
from hotswap.optim import modules
from tests.optim.helpers import advance, batches, noisy


def test_a_module_without_parameters_of_ours_is_named() -> None:
    first, second = noisy(), nn.BatchNorm1d(3, affine=False)
    advance(HotSwapSGD(first.parameters(), module=second), lambda x: second(first(x)), first[1], second, steps=3)
    with pytest.raises(hotswap.SettingError, match=r"HotSwapSGD\(module=3\): module must be a torch.nn.Module"):
        HotSwapSGD(first.parameters(), module=3)  # type: ignore[arg-type]


def test_modules_are_found_around_and_inside_and_when_parameters_come_later() -> None:
    inner, outer, late = noisy(), nn.Sequential(nn.BatchNorm1d(5)), nn.Sequential(nn.BatchNorm1d(3))
    outer.append(inner)
    optimizer = HotSwapSGD(inner[5].parameters())
    advance(optimizer, outer, outer[0], inner[4])
    optimizer.add_param_group({"params": list(late.parameters())})
    advance(optimizer, lambda x: late(outer.forward(x)), outer[0], late[0])


@pytest.mark.parametrize("way", ["sequential", "attribute", "wrapper of a wrapper"])
def test_a_wrapper_built_after_the_first_step_is_found(way: str) -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    advance(optimizer, net, net[1])
    norm, outer = nn.BatchNorm1d(5), nn.Module()
    outer.inner = net if way == "attribute" else nn.Sequential(net)
    outer.norm = norm
    advance(optimizer, lambda x: outer.inner(norm(x)), norm, net[1], steps=3)
    if way == "wrapper of a wrapper":
        around = nn.Sequential(nn.BatchNorm1d(5, affine=False), outer)
        advance(optimizer, lambda x: outer.inner(norm(around[0](x))), around[0], norm, net[1])


def test_modules_are_found_also_after_a_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who forks workers often freezes what is there before."""
    monkeypatch.setattr(modules, "gc", gc)
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    gc.freeze()
    try:
        advance(optimizer, net, net[1])
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


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
    for put in (net.__setitem__, lambda at, new: net._modules.update({str(at): new})):
        advance(optimizer, net, net[1])
        put(1, nn.BatchNorm1d(16, affine=False))
    advance(optimizer, net, net[1])


def test_modules_are_found_when_they_are_taken_out_wrapped_or_share_a_weight() -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    outer, norm = nn.Sequential(net), nn.BatchNorm1d(5, affine=False)
    optimizer = HotSwapSGD(net.parameters())
    advance(optimizer, outer, net[1])
    del outer[0]
    advance(optimizer, net, net[1])
    around = nn.Sequential(net[0], norm)  # around something inside
    advance(optimizer, lambda x: net[2](around(x)), norm)
    other = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, affine=False))
    other[0].weight = net[0].weight
    advance(optimizer, lambda x: net[2](other(x)), other[1])


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
    advance(HotSwapSGD(net.parameters()), net)
    assert net.norm.num_batches_tracked == 1
    assert net.found == [False] * len(net.found)
    assert net.scale == 2


def test_a_leaf_that_gets_a_module_is_looked_into() -> None:
    """Without torch being told."""
    net = nn.Sequential(nn.Linear(5, 8), nn.Identity(), nn.Linear(8, 3))
    optimizer = HotSwapSGD(net.parameters())
    late = nn.BatchNorm1d(8, affine=False)
    advance(optimizer, net, steps=2)
    net[1]._modules["late"] = late
    advance(optimizer, lambda x: net[2](late(net[0](x))), late, steps=2)


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
    advance(optimizer, net)
    gone = weakref.ref(wrapper), weakref.ref(teacher)
    del wrapper, teacher
    gc.collect()
    advance(optimizer, net)
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
    assert net.norm.num_batches_tracked == 2
