"""What every bandit must do. A public bandit that is not in the list fails the suite."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

import hotswap
import hotswap.bandits
from hotswap import Bandit, DiscountedUCB

BANDITS: list[Bandit] = [
    DiscountedUCB(),
    DiscountedUCB(discount=1.0),
    DiscountedUCB(discount=0.3, exploration=0.0),
    DiscountedUCB(exploration=10.0),
]


def test_every_public_bandit_is_here() -> None:
    public = {
        value
        for name in hotswap.bandits.__all__
        if isinstance(value := getattr(hotswap.bandits, name), type) and issubclass(value, Bandit)
    } - {Bandit}
    assert public == {type(bandit) for bandit in BANDITS}


def drive(bandit: Bandit, rewards: torch.Tensor) -> tuple[torch.Tensor, hotswap.bandits.BanditState]:
    """Feed `rewards` (R, K, steps) to a bandit; returns the arms (R, steps) it proposed."""
    runs, arms, steps = rewards.shape
    state = bandit.start(runs, arms)
    proposals = []
    for t in range(steps):
        arm, state = bandit.propose(state)
        proposals.append(arm)
        state = bandit.observe(state, arm.unsqueeze(1), rewards[:, :, t].gather(1, arm.unsqueeze(1)))
    return torch.stack(proposals, 1), state


@pytest.mark.parametrize("bandit", BANDITS, ids=repr)
class TestEveryBandit:
    def test_settings_are_frozen(self, bandit: Bandit) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            bandit.discount = 0.5  # type: ignore[attr-defined]

    def test_runs_do_not_see_each_other(self, bandit: Bandit) -> None:
        rewards = torch.randn(5, 7, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        together, _ = drive(bandit, rewards)
        alone = torch.cat([drive(bandit, rewards[run : run + 1])[0] for run in range(5)])
        assert torch.equal(together, alone)

    def test_functions_are_pure(self, bandit: Bandit) -> None:
        state = bandit.start(2, 3)
        before = copy.deepcopy(state)
        arm, proposed = bandit.propose(state)
        kept = copy.deepcopy(proposed)
        bandit.observe(proposed, arm.unsqueeze(1), torch.ones(2, 1, dtype=torch.float64))
        assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(proposed, kept, strict=True))

    def test_shapes_and_types_are_stable(self, bandit: Bandit) -> None:
        _, state = drive(bandit, torch.zeros(3, 4, 12, dtype=torch.float64))
        assert [(t.shape, t.dtype) for t in state] == [(t.shape, t.dtype) for t in bandit.start(3, 4)]

    def test_prefers_the_arm_that_pays(self, bandit: Bandit) -> None:
        rewards = torch.zeros(1, 5, 400, dtype=torch.float64)
        rewards[:, 3] = 50.0
        proposals, _ = drive(bandit, rewards)
        assert (proposals[0, 100:] == 3).double().mean() > 0.5

    def test_untried_entries_teach_nothing(self, bandit: Bandit) -> None:
        state = bandit.start(1, 3)
        arm, reward = torch.tensor([[0, 1]]), torch.tensor([[1.0, torch.nan]], dtype=torch.float64)
        after = bandit.observe(state, arm, reward, tried=torch.tensor([[True, False]]))
        assert after.counts.tolist() == [[1.0, 0.0, 0.0]]
        assert after.rewards.tolist() == [[1.0, 0.0, 0.0]]
