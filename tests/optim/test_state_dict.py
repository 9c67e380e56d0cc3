"""Stopping and going on: the same future, to the bit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hotswap import (
    CheckpointError,
    DiscountedUCB,
    FirstDecrease,
    HotSwap,
    HotSwapSGD,
    HotSwapWarning,
    NoSearch,
    RelativeReduction,
)
from tests.optim.helpers import batches, loss_of, model, same, through_a_file, train, weights
from tests.optim.test_fewer_searches import BUILDS as FEWER
from tests.optim.test_hyperparameters import factored

BUILDS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "sgd": lambda net: HotSwapSGD(net.parameters()),
    "momentum": lambda net: HotSwapSGD(net.parameters(), momentum=0.9),
    "adam": lambda net: HotSwap(torch.optim.Adam(net.parameters())),
    "relative": lambda net: HotSwapSGD(net.parameters(), reward=RelativeReduction()),
    "exact": lambda net: HotSwap(torch.optim.Adafactor(net.parameters())),
    "product": lambda net: HotSwap(
        torch.optim.Adam(net.parameters()), {"lr": [1.0, 0.1, 0.01], "betas": [(0.9, 0.99), (0.5, 0.9)]}
    ),
    **{f"fewer searches, {name}": build for name, build in FEWER.items()},
    "factored": factored,
    "factored, untried": lambda net: factored(net, search=NoSearch()),
    "factored, every third": lambda net: factored(net, search_every=3),
}


@pytest.mark.parametrize("build", BUILDS)
def test_resumes_exactly(build: str) -> None:
    """While a sweep begins, in its middle, between two searches, and long after."""
    data, net = batches(90), model()
    optimizer = BUILDS[build](net)
    saved, records, ends = {}, [], []
    for number, batch in enumerate(data):
        if number in (1, 4, 11, 50):
            saved[number] = through_a_file({"model": net.state_dict(), "optimizer": optimizer.state_dict()})
        records += train(net, optimizer, [batch])
        ends.append(weights(net))
    for after, state in saved.items():
        again = model(seed=9)
        resumed = BUILDS[build](again)
        train(again, resumed, batches(4, seed=5))  # it has a past of its own, which must not matter
        again.load_state_dict(state["model"])
        resumed.load_state_dict(state["optimizer"])
        seen = train(again, resumed, data[after : after + 40])
        assert repr(seen) == repr(records[after : after + 40])  # NaN is not itself
        assert same(weights(again), ends[after + 39])


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deep", "pickle"]
)
@pytest.mark.parametrize("build", BUILDS)
def test_copies_go_their_own_way_and_the_same(build: str, copied: Callable[[Any], Any]) -> None:
    data = batches(60)
    net = model()
    optimizer = BUILDS[build](net)
    train(net, optimizer, data[:20])
    twin_net, twin = copied((net, optimizer))
    before = weights(twin_net)
    expected = train(net, optimizer, data[20:])
    assert same(weights(twin_net), before)  # nothing is shared
    assert twin.base.param_groups is twin.param_groups
    assert repr(train(twin_net, twin, data[20:])) == repr(expected)
    assert same(weights(twin_net), weights(net))


def test_a_scheduler_survives_a_deepcopy() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5)
    _, twin = copy.deepcopy((net, optimizer))
    assert "step" not in vars(twin)  # not the scheduler's wrapper around the original's step


def test_the_scale_of_the_rates_is_part_of_the_state() -> None:
    net = model()
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=0.5), {"lr": [0.1]})
    other = HotSwap(torch.optim.SGD(net.parameters(), lr=0.25), {"lr": [0.1]})
    other.load_state_dict(optimizer.state_dict())
    other.step(loss_of(net, batches(1)[0]))
    assert other.last_step.values["lr"] == pytest.approx(0.1)


def test_hooks_see_the_whole_state() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    seen: list[bool] = []
    optimizer.register_state_dict_post_hook(lambda _, state: seen.append("hotswap" in state["param_groups"][0]))
    optimizer.register_load_state_dict_pre_hook(lambda _, state: state["inner"])
    optimizer.load_state_dict({"inner": optimizer.state_dict()})
    assert seen == [True]


def test_loading_into_the_base_is_loading_into_both() -> None:
    net = model()
    plain = torch.optim.Adam(net.parameters())
    loss_of(net, batches(1)[0])().backward()
    plain.step()
    optimizer = HotSwap(torch.optim.Adam(net.parameters()))
    optimizer.base.load_state_dict(plain.state_dict())
    assert optimizer.param_groups is optimizer.base.param_groups
    assert len(optimizer.state_dict()["state"]) == 4


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("format", "written by an earlier version of hotswap, whose format is not read"),
        ("in_force", "is damaged: its entry 'hotswap' lacks in_force"),
    ],
)
def test_an_entry_that_lacks_something(missing: str, message: str) -> None:
    optimizer = HotSwapSGD(model().parameters())
    state = optimizer.state_dict()
    del state["param_groups"][0]["hotswap"][missing]
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"bandit": DiscountedUCB(discount=0.9)},
            r"discount=0.99, .*now DiscountedUCB\(discount=0.9,",
        ),
        ({"search": FirstDecrease()}, r"search=Backtracking\(.*now FirstDecrease\("),
        ({"clip_norm": 0.5}, r"with clip_norm=None, now 0\.5\. What"),
        ({"reward": RelativeReduction()}, r"reward=LogReduction\(.*now RelativeReduction\("),
    ],
)
def test_other_settings_than_the_checkpoints_are_warned_of(changed: dict[str, Any], said: str) -> None:
    net, (batch,) = model(), batches(1)
    optimizer = HotSwapSGD(net.parameters())
    train(net, optimizer, [batch])
    other = HotSwapSGD(net.parameters(), **changed)
    with pytest.warns(HotSwapWarning, match=said) as warned:
        other.load_state_dict(optimizer.state_dict())
    assert [warning.filename for warning in warned] == [__file__]


def test_a_saved_state_does_not_change_afterwards() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    train(net, optimizer, batches(40))
    saved = optimizer.state_dict()
    optimizer._memory.bandit.counts[:] += 1  # even if it is changed in place
    counts = saved["param_groups"][0]["hotswap"]["bandit"]["counts"].clone()
    train(net, optimizer, batches(10))
    assert torch.equal(saved["param_groups"][0]["hotswap"]["bandit"]["counts"], counts)
    assert "hotswap" not in optimizer.param_groups[0]


def test_a_step_without_search_right_after_loading_uses_the_values_in_force() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    records = train(net, optimizer, batches(40))
    resumed = HotSwapSGD(net.parameters())
    resumed.load_state_dict(optimizer.state_dict())
    with pytest.warns(HotSwapWarning, match="what the latest search chose applies"):
        resumed.step()
    taken = [r.arm for r in records if r.arm is not None][-1]
    assert resumed.last_step.arm == taken


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda net: HotSwapSGD(net.parameters(), lr=[0.1, 0.2]), r"it has 2 values of lr from 0\.2 to 0\.1, this"),
        (
            lambda net: HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"momentum": [0.5]}),
            "it has 1 value of momentum from 0.5 to 0.5, this optimizer 33 values of lr from 100.0 to 1e-06",
        ),
        (lambda net: torch.optim.SGD(net.parameters(), lr=1.0), "was not saved by a hot-swapped optimizer"),
        (
            lambda net: HotSwapSGD([*net.parameters(), nn.Parameter(torch.ones(1))]),
            "parameter group 0 has 5 parameters",
        ),
    ],
)
def test_refuses_the_state_of_another_and_changes_nothing(other: Any, message: str) -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    train(net, optimizer, batches(5))
    known = optimizer.statistics()
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict(other(net).state_dict())
    assert optimizer.statistics() == known
