"""Hot swapping for many runs at once: any bandit, search and reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap import (
    Backtracking,
    Bandit,
    CheckpointError,
    DiscountedUCB,
    FirstDecrease,
    HotSwapSGD,
    LogReduction,
    RelativeReduction,
    Search,
    log_grid,
)
from hotswap.ensemble import Ensemble, HotSwapped, Mlp
from hotswap.ensemble.updates import hot_swapped as module
from hotswap.networks import multilayer_perceptron
from tests.bandits.bandits import EpsilonGreedy, EpsilonGreedyData, WithLatest
from tests.ensemble.helpers import BATCH, MODELS, SIZES, STEPS, D, batches, data, flat, hot_swapped, tally_of, train
from tests.searches.searches import UpThenDown


@pytest.mark.parametrize("kind", MODELS)
def test_every_run_takes_the_optimizers_decisions(kind: str) -> None:
    update = hot_swapped(MODELS[kind](), [0, 1, 2])
    ensemble = Ensemble(update, data(), BATCH, data_seed=5)
    ensemble.train_epoch(0)
    counts = update.tally.arms
    for run, seed in enumerate([0, 1, 2]):
        network = multilayer_perceptron(SIZES, seed=seed).to(D)
        optimizer = HotSwapSGD(network.parameters())
        trials = 0
        taken = torch.zeros(33, dtype=D)
        for x, y in batches():
            optimizer.step(lambda x=x, y=y, network=network: cross_entropy(network(x), y))
            trials += len(optimizer.last_step.trials)
            if optimizer.last_step.arm is not None:
                taken[optimizer.last_step.arm] += 1
        assert taken.sum() > STEPS / 2
        assert torch.equal(counts[run], taken)
        assert int(update.tally.sums["trials"][run]) == trials
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-9, atol=1e-9)
        learned = torch.tensor([row.count for row in optimizer.statistics()], dtype=D)
        torch.testing.assert_close(update.learned.counts[run], learned, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("search", [Backtracking(headroom=1), FirstDecrease(), Backtracking(max_trials=3)], ids=repr)
@pytest.mark.parametrize("block", [(1, 1), (3, 2), (2, 7), (33, 1)])
def test_the_size_of_a_block_changes_nothing(block: tuple[int, int], search: Any) -> None:
    one, other = (hot_swapped(Mlp(SIZES), [0, 1], block=sizes, search=search) for sizes in ((2, 2), block))
    train(one)
    train(other)
    assert torch.equal(one.tally.arms, other.tally.arms)
    assert torch.equal(one.tally.sums["trials"], other.tally.sums["trials"])
    torch.testing.assert_close(one.theta, other.theta, rtol=1e-9, atol=1e-9)


def test_the_tally_counts_rates_trials_and_arms() -> None:
    tally = tally_of(hot_swapped(Mlp(SIZES), [0]))
    assert set(tally.means) == {"mean_lr", "trials"}
    assert tally.means["trials"][0] > 1.0
    assert tally.means["mean_lr"][0] > 0
    assert sum(tally.arms[0]) <= STEPS


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_a_step_is_to_the_bit_what_is_written_out_here(dtype: torch.dtype) -> None:
    """The update as it was when it knew one kind of walk and of reward only: blocks of 4 and of 8 arms, downwards."""
    model, bandit, search, reward = Mlp(SIZES), DiscountedUCB(), Backtracking(), LogReduction()
    update = HotSwapped(model, model.initial([0, 1, 2]).to(dtype), log_grid(), bandit, search)
    theta, rates = update.theta.clone(), torch.tensor(log_grid(), dtype=D)
    state = bandit.start(3, 33, torch.device("cpu"))
    train(update)
    for inputs, y in batches():
        x = model.prepare(inputs.to(dtype))
        gradient = model.gradient(theta, x, y)
        at = model.before_trials(gradient, x)
        proposal, state = bandit.propose(state)
        walk, size = search.begin(proposal, gradient.loss.double(), arms=33), 4
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


PARTS: list[tuple[Bandit, Search, Any]] = [
    (WithLatest(), UpThenDown(), LogReduction()),
    (EpsilonGreedy(), UpThenDown(), RelativeReduction()),
    (EpsilonGreedyData(), Backtracking(), RelativeReduction(memory=0.9)),
]


def with_parts(parts: tuple[Bandit, Search, Any], seeds: list[int], **options: Any) -> HotSwapped:
    model = Mlp(SIZES)
    bandit, search, reward = parts
    rates = log_grid(10, 1e-3, 17)
    return HotSwapped(model, model.initial(seeds).to(D), rates, bandit, search, reward, seeds=seeds, **options)


@pytest.mark.parametrize("parts", PARTS, ids=repr)
class TestAnyParts:
    def test_a_run_does_not_depend_on_those_beside_it(self, parts: Any) -> None:
        together = with_parts(parts, [3, 1, 2])
        train(together, count=500)
        for place, seed in enumerate([3, 1, 2]):
            alone = with_parts(parts, [seed])
            train(alone, count=500)
            assert torch.equal(alone.tally.arms[0], together.tally.arms[place])
            assert torch.equal(alone.tally.sums["trials"][0], together.tally.sums["trials"][place])
            torch.testing.assert_close(alone.theta[0], together.theta[place], rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("block", [(1, 1), (6, 3)])
    def test_the_size_of_a_block_changes_nothing(self, parts: Any, block: tuple[int, int]) -> None:
        one, other = with_parts(parts, [0, 1]), with_parts(parts, [0, 1], block=block)
        train(one, count=500)
        train(other, count=500)
        assert torch.equal(one.tally.arms, other.tally.arms)
        assert torch.equal(one.tally.sums["trials"], other.tally.sums["trials"])

    def test_resuming_is_exact(self, parts: Any) -> None:
        straight, first = with_parts(parts, [0, 1]), with_parts(parts, [0, 1])
        train(straight, epochs=2, count=500)
        train(first, count=500)
        second = with_parts(parts, [5, 6])  # other seeds, and other weights
        second.restore({name: tensor.clone() for name, tensor in first.state().items()})
        train(second, first=1, epochs=2, count=500)
        for name, tensor in straight.state().items():
            assert torch.equal(tensor, second.state()[name]), name


@pytest.mark.parametrize("parts", [PARTS[0], PARTS[2]], ids=repr)
def test_every_piece_compiles_without_a_break(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU runs as compiled kernels, traced here as a whole."""
    torch._dynamo.reset()
    plain, traced = with_parts(parts, [0, 1]), with_parts(parts, [0, 1])
    train(plain, count=200)
    monkeypatch.setattr(module, "fused", lambda f, like: torch.compile(f, backend="eager", fullgraph=True))
    train(traced, count=200)
    assert torch.equal(plain.theta, traced.theta)
    torch._dynamo.reset()


@dataclass(frozen=True)
class ForeseesNonsense(Backtracking):
    def foresee(self, walk: Any, count: int) -> Any:
        return super().foresee(walk, count) * 0 + torch.arange(count) * 1000 - 500


def test_what_a_search_foresees_wrongly_costs_time_only() -> None:
    right, wrong = (hot_swapped(Mlp(SIZES), [0, 1], search=kind()) for kind in (Backtracking, ForeseesNonsense))
    train(right)
    train(wrong)
    assert torch.equal(right.tally.arms, wrong.tally.arms)
    assert torch.equal(right.tally.sums["trials"], wrong.tally.sums["trials"])


def test_a_running_scale_is_part_of_the_state() -> None:
    update = with_parts((DiscountedUCB(), Backtracking(), RelativeReduction()), [0])
    train(update)
    assert update.state()["reward_scale"].item() > 0
    assert set(update.state()) == {
        "theta", "passes", "reward_scale", "bandit_version", "bandit/rewards", "bandit/counts", "bandit/step"
    }  # fmt: skip


@dataclass(frozen=True)
class Second(DiscountedUCB):
    """Counts twice since its second version."""

    state_version = 2

    def migrate(self, arrays: dict[str, Any], version: int) -> dict[str, Any]:
        return arrays | {"counts": 2 * arrays["counts"]} if version == 1 else super().migrate(arrays, version)


def test_the_bandit_translates_what_another_version_of_it_has_saved() -> None:
    old = hot_swapped(Mlp(SIZES), [0, 1])
    train(old)
    new = HotSwapped(old.model, old.theta.clone(), log_grid(), Second(), Backtracking())
    new.restore(old.state())
    assert torch.equal(new.learned.counts, 2 * old.learned.counts)
    assert new.state()["bandit_version"].tolist() == [2, 2]
    with pytest.raises(CheckpointError, match="holds version 2 of the state of DiscountedUCB"):
        old.restore(new.state())


def test_another_bandits_state_is_refused() -> None:
    random = with_parts(PARTS[1], [0, 1])
    with pytest.raises(CheckpointError, match="The checkpoint is of another bandit"):
        hot_swapped(Mlp(SIZES), [0, 1]).restore(random.state())
