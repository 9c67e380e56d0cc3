"""Discounted UCB against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap import DiscountedUCB
from hotswap.bandits import BanditState

Make = Any


def made(array: Make, rewards: list[float], counts: list[float], step: int) -> BanditState:
    return BanditState(array([rewards]) * 1.0, array([counts]) * 1.0, array([step]))


def test_index_by_hand(array: Make) -> None:
    # n = 2 + 4 + 1 = 7, c = 2: means 0.5, -0.25, 0; widths sqrt(2 ln 7 / count)
    index = DiscountedUCB(discount=0.9, exploration=2.0).index(made(array, [1.0, -1.0, 0.0], [2.0, 4.0, 1.0], 9))
    assert index[0].tolist() == pytest.approx(
        [0.5 + 1.394958834179458, -0.25 + 0.986384851124376, 0.0 + 1.972769702248751], abs=1e-12
    )


def test_the_proposal_discounts_first(array: Make) -> None:
    bandit = DiscountedUCB(discount=0.5, exploration=0.0)
    arm, after = bandit.propose(made(array, [1.0, 3.0], [2.0, 3.0], 5))
    assert arm.tolist() == [1]
    assert after.rewards.tolist() == [[0.5, 1.5]]
    assert after.counts.tolist() == [[1.0, 1.5]]
    assert after.step.tolist() == [6]


def test_the_sweep_starts_at_every_arm_but_the_last_and_discounts_nothing(array: Make) -> None:
    bandit = DiscountedUCB()
    now = bandit.start(1, 4, array.device)
    for t in range(3):
        arm, now = bandit.propose(now)
        assert arm.tolist() == [t]
        now = bandit.observe(now, arm[:, None], array([[1.0]]))
    assert now.counts.tolist() == [[1.0, 1.0, 1.0, 0.0]]
    arm, now = bandit.propose(now)
    assert arm.tolist() == [3]  # the sweep ends before the last arm, which is untried and so comes next
    assert now.counts.tolist() == [[0.99, 0.99, 0.99, 0.0]]


def test_untried_arms_come_first_and_ties_go_to_the_larger_rate(array: Make) -> None:
    bandit = DiscountedUCB()
    assert bandit.propose(made(array, [5.0, 0.0, 0.0], [1.0, 0.0, 0.0], 9))[0].tolist() == [1]
    assert bandit.propose(made(array, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 9))[0].tolist() == [0]


def test_strong_discounting_clamps_the_logarithm(array: Make) -> None:
    index = DiscountedUCB(exploration=1.0).index(made(array, [0.1, 0.2], [0.25, 0.25], 9))  # n = 0.5, log(n) < 0
    assert index[0].tolist() == [0.4, 0.8]


def test_numpy_and_torch_agree_to_the_bit() -> None:
    bandit, rewards = DiscountedUCB(), np.random.default_rng(1).normal(size=(80, 3, 6))
    ours, theirs = bandit.start(3, 6), bandit.start(3, 6, torch.device("cpu"))
    for table in rewards:
        arm, ours = bandit.propose(ours)
        other, theirs = bandit.propose(theirs)
        assert arm.tolist() == other.tolist()
        earned = table[range(3), arm][:, None]
        ours = bandit.observe(ours, arm[:, None], earned)
        theirs = bandit.observe(theirs, other[:, None], torch.from_numpy(earned))
    for name, array in ours._asdict().items():
        assert array.tolist() == getattr(theirs, name).tolist()


@given(seed=st.integers(0, 2**32 - 1), arms=st.integers(1, 40), exploration=st.sampled_from([0.0, 1e-8, 2.0]))
@settings(max_examples=60)
def test_one_run_takes_a_shorter_way_to_the_same_numbers(seed: int, arms: int, exploration: float) -> None:
    """An optimizer has one run; beside another one, which it does not know of, it must be the same to the bit."""
    random, bandit = np.random.default_rng(seed), DiscountedUCB(0.9, exploration)
    alone, beside = bandit.start(1, arms), bandit.start(2, arms)
    for _ in range(arms + 30):
        arm, alone = bandit.propose(alone)
        both, beside = bandit.propose(beside)
        assert arm.dtype == both.dtype
        assert arm.tolist() == both.tolist()[:1]
        tried = random.integers(0, arms, 3).tolist()
        earned = random.normal(size=3).tolist()
        alone = bandit.observe(alone, [tried], [earned])
        beside = bandit.observe(beside, np.array([tried, tried[::-1]]), np.array([earned, earned]))
        assert np.array_equal(bandit.index(alone)[0], bandit.index(beside)[0])
        for name, array in alone._asdict().items():
            assert array.dtype == getattr(beside, name).dtype
            assert array[0].tolist() == getattr(beside, name)[0].tolist()


def test_a_proposal_leaves_the_state_before_it_as_it_was() -> None:
    bandit = DiscountedUCB(0.5)
    for step in (0, 9):
        before = made(np.asarray, [1.0, 3.0], [2.0, 3.0], step)
        bandit.observe(bandit.propose(before)[1], [[0]], [[1.0]])
        assert [field.tolist() for field in before] == [[[1.0, 3.0]], [[2.0, 3.0]], [step]]


def test_trials_that_did_not_happen_are_left_out_of_lists_too() -> None:
    after = DiscountedUCB().observe(
        made(np.asarray, [0.0, 0.0], [0.0, 0.0], 3), [[0, 1]], [[5.0, 2.0]], [[False, True]]
    )
    assert after.rewards.tolist() == [[0.0, 2.0]]
    assert after.counts.tolist() == [[0.0, 1.0]]


def test_one_arm(array: Make) -> None:
    bandit = DiscountedUCB()
    arm, now = bandit.propose(bandit.start(2, 1, array.device))
    assert arm.tolist() == [0, 0]
    assert now.step.tolist() == [1, 1]


@given(
    rewards=st.lists(st.floats(-100, 100), min_size=2, max_size=6),
    exploration=st.floats(0, 10),
    data=st.data(),
)
@settings(max_examples=60)
def test_discount_one_is_ucb1(rewards: list[float], exploration: float, data: st.DataObject) -> None:
    """Auer's UCB1, mean + sqrt(c ln n / n_k), with c = 2 his choice; counts are whole numbers."""
    size = len(rewards)
    counts = data.draw(st.lists(st.integers(1, 50), min_size=size, max_size=size))
    _, after = DiscountedUCB(1.0, exploration).propose(made(np.asarray, rewards, [float(c) for c in counts], 100))
    assert after.rewards.tolist() == [rewards]
    index = DiscountedUCB(1.0, exploration).index(after)[0].tolist()
    n = sum(counts)
    assert index == pytest.approx(
        [r / c + math.sqrt(exploration * math.log(n) / c) for r, c in zip(rewards, counts, strict=True)], abs=1e-9
    )


def test_what_is_long_forgotten_is_untried_again() -> None:
    """0.9 to the power of 8,000 is no number any more; what is left must not pass for a mean."""
    bandit = DiscountedUCB(discount=0.9, exploration=0.0)
    now = made(np.asarray, [-100.0, 0.5], [1.0, 1.0], 9)
    again = 0
    for _ in range(8_000):
        arm, now = bandit.propose(now)
        reward = np.array([[0.5]]) if arm.item() else np.array([[-100.0]])
        again += arm.item() == 0
        now = bandit.observe(now, arm[:, None], reward)
        assert now.means[0, 0] in (0.0, pytest.approx(-100.0, rel=1e-6))
    assert again == 1


@given(
    losses=st.lists(st.floats(-100, 100), min_size=1, max_size=40),
    discount=st.floats(1e-3, 1.0),
    exploration=st.floats(0, 1e3),
)
@settings(max_examples=60)
def test_statistics_stay_finite_for_long(losses: list[float], discount: float, exploration: float) -> None:
    bandit = DiscountedUCB(discount, exploration)
    now = bandit.start(1, 3)
    for reward in losses * 5:
        arm, now = bandit.propose(now)
        assert 0 <= arm.item() < 3
        now = bandit.observe(now, arm[:, None], np.array([[reward]]))
    assert np.isfinite(now.rewards).all()
    assert np.isfinite(now.counts).all()
    assert np.isfinite(now.means).all()
    assert not np.isnan(bandit.index(now)).any()
