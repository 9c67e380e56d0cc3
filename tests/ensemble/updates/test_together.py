"""Runs of several kinds of hot swapping trained together take the decisions that they would take alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap import Armijo, Arms, Backtracking, BothWays, DiscountedUCB, HotSwap, NoSearch, RelativeReduction, log_grid
from hotswap.ensemble import HotSwapped, Mlp
from hotswap.ensemble.updates import AdamDirection, Momentum, Variant
from hotswap.ensemble.updates import hot_swapped as module
from hotswap.errors import SettingError
from hotswap.guards import Guard
from hotswap.networks import multilayer_perceptron
from hotswap.pacing import Pace
from tests.ensemble.helpers import SIZES, D, batches, flat, train

RATES = Arms.of({"lr": log_grid(10, 1e-3, 17)})
PAPER = Variant(RATES, DiscountedUCB(), Backtracking())
PLAIN = {
    "paper": PAPER,
    "the same again": PAPER,
    "another bandit": replace(PAPER, bandit=DiscountedUCB(0.9)),
    "armijo": replace(PAPER, search=Armijo()),
    "both ways": replace(PAPER, search=BothWays()),
    "no search": replace(PAPER, search=NoSearch()),
    "every third": replace(PAPER, pace=Pace(every=3)),
    "unsure": replace(PAPER, pace=Pace(every=None, when="unsure")),
    "risen": replace(PAPER, pace=Pace(every=None, when="risen")),
    "guarded": replace(PAPER, search=NoSearch(), guard=Guard(steps=3, every=5)),
    "relative": replace(PAPER, reward=RelativeReduction()),
    "momentum": replace(PAPER, direction=Momentum(0.9)),
    "adam": replace(PAPER, direction=AdamDirection(), search=Armijo()),
}
JUDGED = {
    "next": replace(PAPER, next_weight=1.0),
    "mixture": replace(PAPER, next_weight=0.3, bandit=DiscountedUCB(0.9)),
}
SEVERAL = {
    "momenta": Variant(Arms.of({"momentum": [0.0, 0.9], "lr": log_grid(1, 1e-3, 5)}), DiscountedUCB(), Backtracking()),
    "decays": Variant(Arms.of({"weight_decay": [0, 1e-3], "lr": log_grid(1, 1e-3, 5)}), DiscountedUCB(), BothWays()),
}


def several(variants: list[Variant], seeds: list[int], model: Mlp | None = None) -> HotSwapped:
    model = Mlp(SIZES) if model is None else model
    theta = model.initial(seeds * len(variants)).to(D)
    return HotSwapped.together(model, theta, [(v, len(seeds)) for v in variants], seeds * len(variants))


@pytest.mark.parametrize("variants", [PLAIN, JUDGED, SEVERAL], ids=["plain", "judged", "several"])
@pytest.mark.parametrize("few", [16, 3])
def test_a_variant_does_not_depend_on_those_beside_it(
    variants: dict[str, Variant], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [3, 1]
    alone = {}
    for name, variant in variants.items():
        alone[name] = several([variant], seeds)
        train(alone[name], count=700, epochs=2)
    monkeypatch.setattr(module, "FEW", few)
    together = several(list(variants.values()), seeds)
    train(together, count=700, epochs=2)
    for place, (name, update) in enumerate(alone.items()):
        rows = slice(2 * place, 2 * place + 2)
        for sums in ("trials", "mean_lr"):
            torch.testing.assert_close(together.tally.sums[sums][rows], update.tally.sums[sums], msg=name)
        assert torch.equal(together.tally.arms[rows], update.tally.arms), name
        torch.testing.assert_close(together.theta[rows], update.theta, rtol=1e-8, atol=1e-9, msg=name)
        torch.testing.assert_close(together.tally.totals["passes"][rows], update.tally.totals["passes"], msg=name)
