"""Hot swapping for many runs at once: of any parts, alone or beside others, each run decides as the optimizer does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap import (
    Armijo,
    Arms,
    Backtracking,
    BothWays,
    CheckpointError,
    DiscountedUCB,
    Exp3S,
    FactoredBandit,
    FirstDecrease,
    HotSwap,
    LogReduction,
    NoSearch,
    RelativeReduction,
    SettingError,
    SmoothedUCB,
    ThompsonSampling,
    log_grid,
)
from hotswap.ensemble import AdamDirection, HotSwapped, Mlp, Model, Momentum, Variant
from hotswap.ensemble import hot_swapped as module
from hotswap.networks import multilayer_perceptron
from hotswap.pacing import Pace
from tests.bandits.bandits import EpsilonGreedyData, WithLatest
from tests.ensemble.helpers import MODELS, SIZES, D, batches, flat, hot_swapped, train
from tests.searches.searches import UpThenDown

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
    "relative": replace(PAPER, reward=RelativeReduction()),
    "momentum": replace(PAPER, direction=Momentum(0.9)),
    "adam": replace(PAPER, direction=AdamDirection(), search=Armijo()),
    "of a user": replace(PAPER, bandit=WithLatest(), search=UpThenDown()),
}
JUDGED = {
    "next": replace(PAPER, next_weight=1.0),
    "both": replace(PAPER, next_weight=0.3, bandit=DiscountedUCB(0.9)),
}
SEVERAL = {
    "momenta": Variant(Arms.of({"momentum": [0.0, 0.9], "lr": log_grid(1, 1e-3, 5)}), DiscountedUCB(), Backtracking()),
    "decays": Variant(Arms.of({"weight_decay": [0, 1e-3], "lr": log_grid(1, 1e-3, 5)}), DiscountedUCB(), BothWays()),
}
EVERY = {
    **PLAIN,
    **JUDGED,
    **SEVERAL,
    "nesterov": replace(PAPER, direction=Momentum(0.7, nesterov=True), search=Armijo(0.3, when_stuck="smallest")),
    "first decrease": replace(PAPER, search=FirstDecrease(headroom=1)),
    "thompson": replace(PAPER, bandit=ThompsonSampling(), pace=Pace(every=2)),
    "smoothed": replace(PAPER, bandit=SmoothedUCB(width=0.5)),
    "exp3s": replace(PAPER, bandit=Exp3S(), search=NoSearch()),
    "random": replace(PAPER, bandit=EpsilonGreedyData(), reward=RelativeReduction(memory=0.9)),
    "factored": replace(SEVERAL["momenta"], bandit=FactoredBandit(DiscountedUCB(), (2, 5))),
}


def several(variants: list[Variant], seeds: list[int], model: Model | None = None, **options: Any) -> HotSwapped:
    model = Mlp(SIZES) if model is None else model
    theta = model.initial(seeds * len(variants)).to(D)
    return HotSwapped(model, theta, [(v, len(seeds)) for v in variants], seeds * len(variants), **options)


def same(one: HotSwapped, other: HotSwapped, rows: slice = slice(None)) -> None:
    """Check that `one` counted and trained as `other` did in its rows."""
    assert torch.equal(one.tally.arms, other.tally.arms[rows])
    assert torch.equal(one.tally.sums["trials"], other.tally.sums["trials"][rows])
    assert torch.equal(one.tally.totals["passes"], other.tally.totals["passes"][rows])
    torch.testing.assert_close(one.tally.sums["mean_lr"], other.tally.sums["mean_lr"][rows])
    torch.testing.assert_close(one.theta, other.theta[rows], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variants", [PLAIN, JUDGED, SEVERAL], ids=["plain", "judged", "several"])
def test_a_run_does_not_depend_on_those_beside_it(
    variants: dict[str, Variant], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [3, 1]
    alone = [several([variant], [seed]) for variant in variants.values() for seed in seeds]
    for update in alone:
        train(update, count=300)
    monkeypatch.setattr(module, "FEW", 3)  # so that rows are gathered
    together = several(list(variants.values()), seeds)
    train(together, count=300)
    for place, update in enumerate(alone):
        same(update, together, slice(place, place + 1))


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
        module=network,
        check_closure=False,
        seed=seed,
    )


@pytest.mark.parametrize(("name", "kind"), [*((name, "mlp") for name in EVERY), ("paper", "functional")])
@pytest.mark.filterwarnings("ignore::hotswap.HotSwapWarning")
def test_a_run_takes_the_optimizers_decisions(name: str, kind: str) -> None:
    variant, seed, steps = EVERY[name], 3, 80
    update = several([variant], [seed], MODELS[kind]())
    train(update, count=10 * steps)
    network = multilayer_perceptron(SIZES, seed=seed).to(D)
    optimizer = optimizer_of(variant, network, seed)
    taken, trials, passes = torch.zeros(len(variant.arms), dtype=D), 0, 0
    for now, later in pairwise(batches(2, count=10 * steps)[: steps + 1]):

        def loss(minibatch: tuple[torch.Tensor, torch.Tensor] = now) -> torch.Tensor:
            return cross_entropy(network(minibatch[0]), minibatch[1])

        def judged(later: Any = later, weight: float = variant.next_weight) -> torch.Tensor:
            return (1 - weight) * loss() + weight * loss(later) if weight < 1 else loss(later)

        optimizer.step(loss, **({"trial_closure": judged} if variant.next_weight else {}))
        step = optimizer.last_step
        assert step is not None
        trials += len(step.trials)
        passes += 3 + len(step.trials) * (1 + (0 < variant.next_weight < 1)) + (variant.next_weight > 0)
        if step.arm is not None:
            taken[step.arm] += 1
    assert taken.sum() > steps / 3
    assert torch.equal(update.tally.arms[0], taken)
    assert int(update.tally.sums["trials"][0]) == trials
    assert int(update.tally.totals["passes"][0]) == passes
    torch.testing.assert_close(update.theta[0], flat(network, kind), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_training_that_was_interrupted_continues_exactly(name: str) -> None:
    straight, first, second = several([EVERY[name]], [3]), several([EVERY[name]], [3]), several([EVERY[name]], [5])
    train(straight, count=200, epochs=2)
    train(first, count=200)
    second.restore({field: tensor.clone() for field, tensor in first.state().items()})
    train(second, count=200, epochs=2, first=1)
    for field, tensor in straight.state().items():
        assert torch.equal(tensor, second.state()[field]), field


@pytest.mark.parametrize("name", ["paper", "first decrease", "of a user", "both ways"])
@pytest.mark.parametrize("block", [(1, 1), (17, 2)])
def test_the_size_of_a_block_changes_nothing(block: tuple[int, int], name: str) -> None:
    one, other = several([EVERY[name]], [0, 1]), several([EVERY[name]], [0, 1], block=block)
    train(one, count=300)
    train(other, count=300)
    same(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_a_step_is_to_the_bit_what_is_written_out_here(dtype: torch.dtype) -> None:
    """The update as it was when it knew one kind of walk and of reward only: blocks of 4 and of 8 arms, downwards."""
    model, bandit, search, reward = Mlp(SIZES), DiscountedUCB(), Backtracking(), LogReduction()
    update = HotSwapped(model, model.initial([0, 1, 2]).to(dtype), [(replace(PAPER, arms=RATES), 3)])
    theta, rates = update.theta.clone(), torch.tensor(log_grid(10, 1e-3, 17), dtype=D)
    state = bandit.start(3, 17, torch.device("cpu"))
    train(update, count=500)
    for inputs, y in batches(count=500):
        x = model.prepare(inputs.to(dtype))
        gradient = model.gradient(theta, x, y)
        at = model.before_trials(gradient, x)
        proposal, state = bandit.propose(state)
        walk, size = search.begin(proposal, gradient.loss.double(), arms=17), 4
        while not walk.done.all():
            arms = torch.minimum(walk.arm[:, None] + torch.arange(size), walk.last[:, None])
            losses = model.trials(theta, at, rates[arms], x, y).double()
            before = walk.loss_before[:, None]
            tried = []
            for number in range(size):
                tried.append(~walk.done)
                walk = search.observe(walk, losses[:, number])
            state = bandit.observe(state, arms, reward.grant(before, before, losses), torch.stack(tried, dim=1))
            size = 8
        chosen = search.choose(walk)
        rate = torch.where(chosen >= 0, rates[chosen.clamp(min=0)], 0.0)
        theta.sub_(torch.where((chosen >= 0)[:, None], rate.to(dtype)[:, None] * gradient.direction, 0.0))
    assert torch.equal(update.theta, theta)
    assert torch.equal(update.learned.rewards, state.rewards)
    assert torch.equal(update.learned.counts, state.counts)


@pytest.mark.parametrize("whole", [True, False], ids=["as one program", "each part a program"])
def test_every_piece_compiles_without_a_break(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU runs as compiled kernels, traced here as a whole."""
    variant = replace(EVERY["random"], pace=Pace(every=3)) if whole else replace(PLAIN["of a user"], search=Armijo())
    monkeypatch.setattr(module, "PIECES", 2 if whole else 1)
    torch._dynamo.reset()
    plain, traced = several([variant], [0]), several([variant], [0])
    assert traced.in_pieces is not whole
    train(plain, count=80)
    monkeypatch.setattr(module, "fused", lambda f, like: torch.compile(f, backend="eager", fullgraph=True))
    train(traced, count=80)
    assert torch.equal(plain.theta, traced.theta)
    torch._dynamo.reset()


@dataclass(frozen=True)
class ForeseesNonsense(Backtracking):
    def foresee(self, walk: Any, count: int) -> Any:
        return super().foresee(walk, count) * 0 + torch.arange(count) * 1000 - 500


def test_what_a_search_foresees_wrongly_costs_time_only() -> None:
    right, wrong = (several([replace(PAPER, search=kind())], [0, 1]) for kind in (Backtracking, ForeseesNonsense))
    train(right, count=300)
    train(wrong, count=300)
    same(right, wrong)


def test_the_state_has_what_the_algorithm_has() -> None:
    plain = {"theta", "passes", "reward_scale", "bandit_version", "bandit/rewards", "bandit/counts", "bandit/step"}
    update = several([PLAIN["relative"]], [0])
    train(update, count=200)
    assert update.state()["reward_scale"].item() > 0
    assert set(update.state()) == plain
    names = set(several([EVERY["thompson"], PLAIN["paper"], PLAIN["momentum"]], [0]).state())
    assert {"bandit/0/squares", "bandit/1/step", "pace/since", "pending", "base/1/velocity", "step"} < names


@dataclass(frozen=True)
class Second(DiscountedUCB):
    """Counts twice since its second version."""

    state_version = 2

    def migrate(self, arrays: dict[str, Any], version: int) -> dict[str, Any]:
        return arrays | {"counts": 2 * arrays["counts"]} if version == 1 else super().migrate(arrays, version)


def test_the_bandit_translates_what_another_version_of_it_has_saved() -> None:
    old, new = several([PAPER], [0, 1]), several([replace(PAPER, bandit=Second())], [0, 1])
    train(old, count=200)
    new.restore(old.state())
    assert torch.equal(new.learned.counts, 2 * old.learned.counts)
    assert new.state()["bandit_version"].tolist() == [2, 2]
    with pytest.raises(CheckpointError, match="holds version 2 of the state of DiscountedUCB"):
        old.restore(new.state())


def test_another_bandits_state_is_refused() -> None:
    with pytest.raises(CheckpointError, match="The checkpoint is of another bandit"):
        hot_swapped(Mlp(SIZES), [0, 1]).restore(several([EVERY["random"]], [0, 1]).state())


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
