"""Hot swapping for many runs at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap import Backtracking, FirstDecrease, HotSwapSGD
from hotswap.ensemble import Ensemble, Mlp
from hotswap.networks import multilayer_perceptron
from tests.ensemble.helpers import BATCH, MODELS, SIZES, STEPS, D, batches, data, flat, hot_swapped, train


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
