"""Checkpoints that version 0.1.0 has written: `data/optimizers-0.1.0.pt`.

For each optimizer the file has the state of network and optimizer after 20 steps, and the arms, losses and weights of
the 10 steps after them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from hotswap import HotSwap, HotSwapSGD, RelativeReduction, log_grid
from tests.optim.helpers import batches, loss_of, model

FILE = Path(__file__).parent / "data" / "optimizers-0.1.0.pt"
RATES = log_grid(10, 1e-3, 9)
BUILDS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "sgd": lambda net: HotSwapSGD(net.parameters(), RATES),
    "momentum": lambda net: HotSwapSGD(
        net.parameters(), RATES, momentum=0.9, clip_norm=1.0, reward=RelativeReduction()
    ),
    "adam": lambda net: HotSwap(
        torch.optim.Adam(net.parameters()), {"lr": [1.0, 0.1, 0.01], "betas": [(0.9, 0.99), (0.5, 0.9)]}
    ),
    "bfloat16": lambda net: HotSwapSGD(net.to(torch.bfloat16).parameters(), RATES),
}


@pytest.mark.parametrize("name", BUILDS)
def test_training_goes_on_as_it_did_then(name: str) -> None:
    saved = torch.load(FILE, weights_only=True)[name]
    net = model(seed=7)
    optimizer = BUILDS[name](net)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    arms, losses = [], []
    for x, y in batches(30)[20:]:
        optimizer.step(loss_of(net, (x.to(net[0].weight.dtype), y)))
        assert optimizer.last_step is not None
        arms.append(optimizer.last_step.arm)
        losses.append(optimizer.last_step.loss_after)
    assert arms == saved["arms_after"]
    assert losses == pytest.approx(saved["losses_after"], rel=1e-5)  # other processors may round differently
    torch.testing.assert_close(dict(net.state_dict()), saved["net_after"])
