"""What an optimizer tells about itself."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

from hotswap import HotSwap, HotSwapSGD, NoSearch
from hotswap.optim import ArmStatistics, Statistics, StepRecord
from tests.optim.helpers import batches, loss_of, model, move_of, own_entry, train


def test_the_record_of_a_step_without_trials_is_of_that_step_whenever_it_is_read() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    base = torch.optim.SGD([parameter], lr=0.5)
    optimizer = HotSwap(base, {"lr": [0.2], "momentum": [0.3]}, search=NoSearch())
    base.param_groups[0]["lr"] = 0.25
    optimizer.step(lambda: (parameter.square().sum(), "beside"))
    twin = copy.deepcopy(optimizer)
    base.param_groups[0]["lr"] = 5.0  # a scheduler comes after the step
    for record in (optimizer.last_step, twin.last_step):
        assert isinstance(record, StepRecord)
        assert (record.start, record.arm, record.loss_before, record.aux) == (0, 0, 1.0, "beside")
        assert record.values == {"momentum": 0.3, "lr": 0.1}  # half of the arm's rate, as the group's was
        assert math.isnan(record.loss_after)
        assert record.trials == record.rewards == ()
    assert optimizer.last_step is optimizer.last_step


def test_statistics_print_as_a_table() -> None:
    rows = (ArmStatistics({"lr": 10.0}, 1.5, -0.25, -0.2), ArmStatistics({"lr": 0.001}, 0.0, 0.0, float("inf")))
    assert str(Statistics(rows)).splitlines() == [
        "arm     lr  count  mean reward  index",
        "  0     10    1.5        -0.25   -0.2",
        "  1  0.001      0            0    inf  <- largest index",
    ]


def test_before_the_first_step_one_arm_is_marked() -> None:
    shown = str(HotSwapSGD(model().parameters()).statistics())
    assert shown.count("largest index") == 1
    assert len(shown.splitlines()) == 34


def test_repr_is_one_line() -> None:
    optimizer = HotSwap(torch.optim.Adam(model().parameters()), {"lr": [1.0, 0.1], "betas": [(0.9, 0.99)]})
    assert repr(optimizer).startswith("HotSwap(Adam, arms: 1 betas x 2 lr, DiscountedUCB(")


def test_a_step_that_does_not_move_leaves_the_values_in_force() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters(), lr=[1e6, 0.1])
    train(net, optimizer, batches(20))
    taken = own_entry(optimizer)["in_force"]
    optimizer.arms = type(optimizer.arms)(("lr",), ((1e9, 1e8),))
    move_of(optimizer).arms = optimizer.arms
    optimizer.step(loss_of(net, batches(1)[0]))
    assert optimizer.last_step.arm is None
    assert own_entry(optimizer)["in_force"] == taken
