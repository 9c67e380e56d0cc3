"""What every bandit must do. A public bandit that is not in the list fails the suite."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import hotswap.bandits
from hotswap import Bandit, DiscountedUCB
from hotswap.bandits import BanditState

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


def drive(bandit: Bandit, rewards: Any, device: Any) -> tuple[Any, BanditState]:
    """Feed `rewards` (R, K, steps) to a bandit; returns the arms (R, steps) it proposed."""
    runs, arms, steps = rewards.shape
    state = bandit.start(runs, arms, device)
    proposals = []
    for t in range(steps):
        arm, state = bandit.propose(state)
        proposals.append(arm.tolist())
        state = bandit.observe(state, arm[:, None], rewards[range(runs), arm, t][:, None])
    return np.array(proposals).T, state


def same(a: BanditState, b: BanditState) -> bool:
    return all(x.tolist() == y.tolist() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("bandit", BANDITS, ids=repr)
class TestEveryBandit:
    def test_settings_are_frozen(self, bandit: Bandit) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            bandit.discount = 0.5  # type: ignore[attr-defined]

    def test_runs_do_not_see_each_other(self, bandit: Bandit, array: Any) -> None:
        rewards = array(np.random.default_rng(0).normal(size=(5, 7, 60)))
        together, _ = drive(bandit, rewards, array.device)
        alone = np.concatenate([drive(bandit, rewards[run : run + 1], array.device)[0] for run in range(5)])
        assert (together == alone).all()

    def test_both_kinds_of_array_agree_to_the_bit(self, bandit: Bandit) -> None:
        rewards = np.random.default_rng(1).normal(size=(3, 6, 80))
        ours, state = drive(bandit, rewards, None)
        theirs, other = drive(bandit, torch.from_numpy(rewards), torch.device("cpu"))
        assert (ours == theirs).all()
        assert same(state, other)

    def test_functions_are_pure(self, bandit: Bandit, array: Any) -> None:
        state = bandit.start(2, 3, array.device)
        before = copy.deepcopy(state)
        arm, proposed = bandit.propose(state)
        kept = copy.deepcopy(proposed)
        bandit.observe(proposed, arm[:, None], array([[1.0], [1.0]]))
        assert same(state, before)
        assert same(proposed, kept)

    def test_shapes_and_types_are_stable(self, bandit: Bandit, array: Any) -> None:
        _, state = drive(bandit, array(np.zeros((3, 4, 12))), array.device)
        assert [(t.shape, t.dtype) for t in state] == [(t.shape, t.dtype) for t in bandit.start(3, 4, array.device)]

    def test_prefers_the_arm_that_pays(self, bandit: Bandit, array: Any) -> None:
        rewards = np.zeros((1, 5, 400))
        rewards[:, 3] = 50.0
        proposals, _ = drive(bandit, array(rewards), array.device)
        assert (proposals[0, 100:] == 3).mean() > 0.5

    def test_untried_entries_teach_nothing(self, bandit: Bandit, array: Any) -> None:
        state = bandit.start(1, 3, array.device)
        reward, tried = array([[1.0, np.nan]]), array([[True, False]])
        after = bandit.observe(state, array([[0, 1]]), reward, tried)
        assert after.counts.tolist() == [[1.0, 0.0, 0.0]]
        assert after.rewards.tolist() == [[1.0, 0.0, 0.0]]
