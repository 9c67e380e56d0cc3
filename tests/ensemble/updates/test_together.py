"""Runs of several kinds of hot swapping trained together take the decisions that they would take alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap import (
    Armijo,
    Arms,
    Backtracking,
    BothWays,
    DiscountedUCB,
    Exp3S,
    FactoredBandit,
    Guard,
    HotSwap,
    NoSearch,
    RelativeReduction,
    SettingError,
    SmoothedUCB,
    ThompsonSampling,
    log_grid,
    mixture,
)
from hotswap.ensemble import AdamDirection, HotSwapped, Mlp, Momentum, Variant
from hotswap.ensemble.updates import hot_swapped as module
from hotswap.networks import multilayer_perceptron
from hotswap.pacing import Pace
from tests.ensemble.helpers import SIZES, D, data, flat, train

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
    "guarded": replace(PAPER, search=NoSearch(), guard=Guard(1.2, steps=2, every=5, memory=0.5)),
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
def test_a_variant_does_not_depend_on_those_beside_it(
    variants: dict[str, Variant], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [3, 1]
    alone = {}
    for name, variant in variants.items():
        alone[name] = several([variant], seeds)
        train(alone[name], count=400, epochs=2)
    monkeypatch.setattr(module, "FEW", 3)  # so that rows are gathered
    together = several(list(variants.values()), seeds)
    train(together, count=400, epochs=2)
    for place, (name, update) in enumerate(alone.items()):
        rows = slice(2 * place, 2 * place + 2)
        for sums in ("trials", "mean_lr"):
            torch.testing.assert_close(together.tally.sums[sums][rows], update.tally.sums[sums], msg=name)
        assert torch.equal(together.tally.arms[rows], update.tally.arms), name
        torch.testing.assert_close(together.theta[rows], update.theta, rtol=1e-8, atol=1e-9, msg=name)
        torch.testing.assert_close(together.tally.totals["passes"][rows], update.tally.totals["passes"], msg=name)


def optimizer_of(variant: Variant, network: torch.nn.Module, seed: int) -> HotSwap:
    direction, rate = variant.direction, {"lr": 1.0}
    if isinstance(direction, AdamDirection):
        base: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), **rate)
    else:
        momentum = direction.momentum if isinstance(direction, Momentum) else 0.0
        nesterov = isinstance(direction, Momentum) and direction.nesterov
        base = torch.optim.SGD(network.parameters(), **rate, momentum=momentum, nesterov=nesterov)
    return HotSwap(
        base,
        dict(zip(variant.arms.names, variant.arms.axes, strict=True)),
        variant.bandit,
        variant.search,
        reward=variant.reward,
        search_every=None if variant.pace.always else variant.pace.every,
        search_when=variant.pace.when,
        guard=variant.guard,
        module=network,
        check_closure=False,
        seed=seed,
    )


EVERY = {
    **PLAIN,
    **JUDGED,
    **SEVERAL,
    "nesterov": replace(PAPER, direction=Momentum(0.7, nesterov=True), search=Armijo(0.3, when_stuck="smallest")),
    "thompson": replace(PAPER, bandit=ThompsonSampling(), pace=Pace(every=2)),
    "smoothed": replace(PAPER, bandit=SmoothedUCB(width=0.5)),
    "exp3s": replace(PAPER, bandit=Exp3S(), search=NoSearch()),
    "factored": replace(SEVERAL["momenta"], bandit=FactoredBandit(DiscountedUCB(), (2, 5))),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.filterwarnings("ignore::hotswap.HotSwapWarning")
def test_a_variant_takes_the_optimizers_decisions(name: str) -> None:
    variant, seed, steps = EVERY[name], 3, 100
    update = several([variant], [seed])
    train(update, count=10 * steps)
    network = multilayer_perceptron(SIZES, seed=seed).to(D)
    optimizer = optimizer_of(variant, network, seed)
    held = data(10 * steps)
    shuffled = [torch.randperm(10 * steps, generator=torch.Generator().manual_seed(5 * 1_000_003 + n)) for n in (0, 1)]
    order = torch.cat(shuffled).view(-1, 10)
    taken, trials, passes = torch.zeros(len(variant.arms), dtype=D), 0, 0
    for rows, next_rows in pairwise(order[: steps + 1]):

        def loss(rows: torch.Tensor = rows) -> torch.Tensor:
            return cross_entropy(network(held.train_x[rows]), held.train_y[rows])

        if variant.next_weight:
            judge = mixture(loss, partial(loss, next_rows), weight=variant.next_weight)
            optimizer.step(loss, trial_closure=judge)
        else:
            optimizer.step(loss)
        step = optimizer.last_step
        trials += len(step.trials)
        passes += 3 + len(step.trials) * (1 + (0 < variant.next_weight < 1)) + (variant.next_weight > 0)
        if step.arm is not None:
            taken[step.arm] += 1
    assert torch.equal(update.tally.arms[0], taken)
    assert int(update.tally.sums["trials"][0]) == trials
    assert int(update.tally.totals["passes"][0]) == passes
    torch.testing.assert_close(update.theta[0], flat(network, "mlp"), rtol=1e-7, atol=1e-8)


def test_a_guard_goes_back_in_this_problem() -> None:
    """So that the comparison of guarded runs above compares something."""
    update = several([PLAIN["guarded"]], [3])
    train(update, count=60)
    assert update.tally.arms.sum() < 6  # steps that went back took no arm


@pytest.mark.parametrize("name", EVERY)
def test_training_that_was_interrupted_continues_exactly(name: str) -> None:
    straight, first, second = (several([EVERY[name]], [3, 1]) for _ in range(3))
    train(straight, count=300, epochs=2)
    train(first, count=300)
    saved = {field: tensor.clone() for field, tensor in first.state().items()}
    second.theta.normal_()
    second.restore(saved)
    train(second, count=300, epochs=2, first=1)
    for field, tensor in straight.state().items():
        assert torch.equal(tensor, second.state()[field]), field


def test_what_cannot_be_trained_together_is_refused() -> None:
    with pytest.raises(SettingError, match="these variants cannot be trained together"):
        several([PAPER, JUDGED["next"]], [0])
    with pytest.raises(SettingError, match="an ensemble cannot swap 'eps'"):
        Variant(Arms.of({"eps": [0.1], "lr": [1.0]}), DiscountedUCB(), Backtracking())
    with pytest.raises(SettingError, match="there is no 'lr' to walk along"):
        Variant(Arms.of({"momentum": [0.1]}), DiscountedUCB(), Backtracking())
    with pytest.raises(SettingError, match="next_weight must be in"):
        replace(PAPER, next_weight=1.5)
    with pytest.raises(SettingError, match="arms over several hyperparameters go with plain gradients"):
        replace(SEVERAL["momenta"], direction=Momentum(0.9))
    with pytest.raises(SettingError, match="a guard goes with plain gradients"):
        several([replace(PAPER, direction=Momentum(0.9), guard=Guard())], [0])
