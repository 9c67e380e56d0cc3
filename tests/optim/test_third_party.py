"""Optimizers of others as bases: they keep their state in every place that there is, and it advances once a step.

Counters are in parameter groups from the first step on (all of pytorch_optimizer's), beside the parameters in `state`
(MADGRAD, SPAM), or on the optimizer itself (StableSPAM).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import pytorch_optimizer
import torch
from torch import nn
from torch.optim import Optimizer

from hotswap import HotSwap
from tests.optim.helpers import batches, loss_of, same, through_a_file, train, weights

BASES = (
    "ADOPT", "AdEMAMix", "AdaBelief", "AdaBound", "AdaMax", "AdaNorm", "AdaPNM", "AdamP", "AdamS", "Adan", "AggMo",
    "Amos", "CAME", "DiffGrad", "FAdam", "FTRL", "Fromage", "Grams", "Kate", "LARS", "LaProp", "Lamb", "Lion",
    "MADGRAD", "MARS", "NovoGrad", "PID", "PNM", "Prodigy", "QHAdam", "RAdam", "SGDP", "SGDW", "SM3", "SOAP", "SPAM",
    "ScheduleFreeAdamW", "ScheduleFreeSGD", "Shampoo", "SignSGD", "StableAdamW", "StableSPAM", "Tiger", "Yogi",
)  # fmt: skip
RATES = [3e-1, 1e-1, 1e-2, 1e-3]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def base(name: str, net: nn.Module) -> Optimizer:
    make: Callable[..., Optimizer] = getattr(pytorch_optimizer, name)
    return make(net.parameters(), lr=1e-2)


def step_at(optimizer: Optimizer, net: nn.Module, batch: Any, rate: float, *, stay: bool = False) -> None:
    """A step of the optimizer alone, at a rate; where it is to `stay`, its state advances and the weights do not."""
    before = weights(net)
    optimizer.zero_grad()
    loss_of(net, batch)().backward()
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    with torch.no_grad():
        for parameter, old in zip(net.parameters(), before if stay else [], strict=False):
            parameter.copy_(old)


@pytest.mark.parametrize("name", BASES)
def test_trials_leave_no_trace(name: str) -> None:
    """The run is that of the base alone, with the rates that were chosen."""
    net, twin = network(), network()
    optimizer, alone = HotSwap(base(name, net), {"lr": RATES}, module=net), base(name, twin)
    trials = 0
    for batch in batches(6):
        optimizer.step(loss_of(net, batch))
        record = optimizer.last_step
        trials += len(record.trials)
        taken = record.arm is not None
        step_at(alone, twin, batch, float(record.values["lr"]) if taken else RATES[-1], stay=not taken)  # type: ignore[arg-type]
        assert same(weights(net), weights(twin))
    assert trials > 6


@pytest.mark.parametrize("name", [name for name in BASES if name != "StableSPAM"])
def test_a_checkpoint_goes_on(name: str) -> None:
    """Not so for StableSPAM, which leaves its own counter out of its state."""
    net = network()
    optimizer = HotSwap(base(name, net), {"lr": RATES}, module=net)
    first, second = batches(6)[:3], batches(6)[3:]
    train(net, optimizer, first)
    other = network()
    other.load_state_dict(net.state_dict())
    resumed = HotSwap(base(name, other), {"lr": RATES}, module=other)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    for batch in second:
        optimizer.step(loss_of(net, batch))
        resumed.step(loss_of(other, batch))
    assert same(weights(net), weights(other))
