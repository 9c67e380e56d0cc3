"""Ctrl-C at every line of a hot-swapped step: all is as before the step or as after it, and the next step works."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hotswap
from hotswap import Armijo, EpsilonGreedy, Exp3S, HotSwap, HotSwapSGD, NoSearch, SmoothedUCB
from tests.optim.helpers import batches, loss_of, model
from tests.optim.test_damaged_checkpoints import RATES, frozen, halves
from tests.race.test_interrupts import Interrupt, numbers_of

HOME = str(Path(hotswap.optim.__file__).parent)
BATCHES = batches(6)
optim = torch.optim

SETUPS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "the paper's": HotSwapSGD,
    "no search": lambda net: HotSwapSGD(net, RATES, momentum=0.9, search=NoSearch(), module=net),
    "risen": lambda net: HotSwapSGD(net, RATES, bandit=Exp3S(), search_when="risen", module=net),
    "every trial a step": lambda net: HotSwap(
        optim.SGD(net.parameters(), lr=1.0), {"lr": RATES, "momentum": [0.0, 0.9]}, bandit=EpsilonGreedy(), module=net
    ),
    "momentum": lambda net: HotSwapSGD(net, RATES, momentum=0.9, weight_decay=1e-4, clip_norm=1.0, module=net),
    "AdamW": lambda net: HotSwap(optim.AdamW(halves(net), lr=0.01), {"lr": RATES}, search=Armijo(), module=net),
    "seldom": lambda net: HotSwap(
        optim.AdamW(net.parameters(), lr=0.01),
        {"lr": RATES},
        bandit=SmoothedUCB(),
        search_every=3,
        loss_scale=1024.0,
        module=net,
    ),
}
STATE_SEES_THE_GRADIENT = ("momentum", "AdamW", "seldom")
"""Where the base's own state may have advanced though the step was not taken."""


def all_of(net: nn.Module, optimizer: HotSwap, name: str) -> Any:
    saved = optimizer.state_dict()
    parts = [[p.detach() for p in net.parameters()], saved["param_groups"]]
    scale = optimizer._loss_scale
    parts.append([] if scale is None else [scale.value, scale.good])
    return frozen(parts if name in STATE_SEES_THE_GRADIENT else [*parts, saved["state"]])


def interrupted(name: str, steps: int, every: int) -> None:
    net = model()
    optimizer = SETUPS[name](net)
    for batch in BATCHES[:steps]:
        optimizer.step(loss_of(net, batch))

    def step(it: tuple[nn.Module, HotSwap], number: int) -> None:
        torch.manual_seed(number)
        it[1].step(loss_of(it[0], BATCHES[number]))

    start = copy.deepcopy((net, optimizer))
    before = all_of(*start, name)
    again = copy.deepcopy(start)
    numbers = numbers_of(partial(step, again, steps), HOME)
    after = all_of(*again, name)
    assert before != after
    for number in numbers[steps::every]:
        again = copy.deepcopy(start)
        with pytest.raises(KeyboardInterrupt), Interrupt(number, HOME):
            step(again, steps)
        assert all_of(*again, name) in (before, after), number
        assert not hotswap.in_trial()
        step(again, steps + 1)


@pytest.fixture
def no_other_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for modules among all living objects, in each copy, would take most of the time."""
    monkeypatch.setattr("hotswap.optim.modules.living_modules", list)


@pytest.mark.usefixtures("no_other_modules")
@pytest.mark.parametrize("name", SETUPS)
def test_ctrl_c_at_lines_of_a_step(name: str) -> None:
    interrupted(name, 3, every=11)


@pytest.mark.soak
@pytest.mark.usefixtures("no_other_modules")
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("name", SETUPS)
def test_ctrl_c_at_every_line_of_a_step(name: str, steps: int) -> None:
    interrupted(name, steps, every=1)
