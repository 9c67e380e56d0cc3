"""Thompson sampling against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hotswap import ThompsonSampling
from hotswap.bandits.thompson_sampling import PosteriorState
from hotswap.generators import generators

Make = Any


def made(array: Make, rewards: list[float], squares: list[float], counts: list[float], runs: int = 1) -> PosteriorState:
    sums = (array([values] * runs) * 1.0 for values in (rewards, squares, counts))
    return PosteriorState(*sums, generator=generators(range(runs), array.device))


def test_the_posterior_by_hand(array: Make) -> None:
    # Arm 0: rewards 0.1, 0.3, 0.5 (S = 0.35 - 0.81/3 = 0.08, f = 2); arm 1: one reward 0.2 (S = f = 0); arm 2: none.
    state = made(array, [0.9, 0.2, 0.0], [0.35, 0.04, 0.0], [3.0, 1.0, 0.0])
    mean, variance = ThompsonSampling(prior=2.0, noise=0.1).posterior(state)
    pooled = (0.08 + 0.01) / (2 + 1)  # 0.03
    own = (0.08 + 0.03) / 3
    assert pooled == pytest.approx(0.03)
    assert mean[0].tolist() == pytest.approx([0.3 * 12 / (12 + own), 0.2 * 4 / (4 + 0.03), 0.0], abs=1e-12)
    assert variance[0].tolist() == pytest.approx([own * 4 / (12 + own), 0.03 * 4 / (4 + 0.03), 4.0], abs=1e-12)


def test_before_anything_was_tried_all_is_prior(array: Make) -> None:
    mean, variance = ThompsonSampling(prior=0.5).posterior(made(array, [0.0] * 2, [0.0] * 2, [0.0] * 2))
    assert mean[0].tolist() == [0.0, 0.0]
    assert variance[0].tolist() == pytest.approx([0.25, 0.25])


def test_the_proposal_discounts_first_and_draws_from_the_posteriors(array: Make) -> None:
    bandit, runs = ThompsonSampling(discount=0.5, noise=0.2), 20_000
    state = made(array, [0.4, 0.0], [0.08, 0.0], [2.0, 2.0], runs)
    arm, after = bandit.propose(state)
    assert after.counts[0].tolist() == [1.0, 1.0]
    assert after.rewards[0].tolist() == [0.2, 0.0]
    assert after.squares[0].tolist() == [0.04, 0.0]
    assert after.generator[:3].tolist() == [[0, 1], [1, 1], [2, 1]]
    # with n = 1 and f = 0 both variances are noise² = 0.04; the posteriors are N(0.2 / 1.04, 0.04 / 1.04), N(0, same)
    width = math.sqrt(2 * 0.04 / 1.04)
    expected = 0.5 * (1 + math.erf(0.2 / 1.04 / width / math.sqrt(2)))  # that the first draw is the larger one: 0.756
    assert float((np.asarray(arm) == 0).mean()) == pytest.approx(expected, abs=0.01)


def test_the_index_is_what_the_next_proposal_draws(array: Make) -> None:
    bandit = ThompsonSampling(discount=1.0)
    state = made(array, [0.4, 0.1, 0.3], [0.1, 0.1, 0.2], [2.0, 1.0, 3.0], 50)
    assert bandit.propose(state)[0].tolist() == bandit.index(state).argmax(axis=1).tolist()


def test_rewards_count_up_to_the_bound(array: Make) -> None:
    bandit = ThompsonSampling(bound=0.5)
    state = bandit.observe(bandit.begin(1, 2, array.device), array([[0, 0, 1]]), array([[-100.0, 0.25, 7.0]]))
    assert state.rewards.tolist() == [[-0.25, 0.5]]
    assert state.squares.tolist() == [[0.3125, 0.25]]
    assert state.counts.tolist() == [[2.0, 1.0]]


def test_a_trial_that_overflows_leaves_good_arms_as_certain_as_they_were(array: Make) -> None:
    bandit = ThompsonSampling()
    calm = made(array, [0.5, 0.4, 0.0], [0.0065, 0.0042, 0.0], [50.0, 40.0, 0.0])
    shaken = bandit.observe(calm, array([[2]]), array([[-100.0]]))
    assert bandit.posterior(shaken)[1][0, 0].item() == pytest.approx(bandit.posterior(calm)[1][0, 0].item(), rel=0.01)


def test_what_is_forgotten_becomes_the_prior_again(array: Make) -> None:
    bandit = ThompsonSampling()
    state = made(array, [0.5], [0.1], [5.0])
    for _ in range(5000):
        _, state = bandit.propose(state)
    mean, variance = bandit.posterior(state)
    assert mean[0, 0] == pytest.approx(0.0, abs=1e-9)
    assert variance[0, 0] == pytest.approx(1.0, abs=1e-9)
