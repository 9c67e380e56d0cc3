"""ε-greedy against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotswap import EpsilonGreedy
from hotswap.bandits.epsilon_greedy import DrawnState
from hotswap.generators import generators

Make = Any


def made(array: Make, rewards: list[float], counts: list[float], runs: int = 1) -> DrawnState:
    seeds = generators(range(runs), array.device)
    return DrawnState(array([rewards] * runs) * 1.0, array([counts] * runs) * 1.0, seeds)


def test_greedy_by_hand(array: Make) -> None:
    arm, after = EpsilonGreedy(epsilon=0.0, discount=0.5).propose(made(array, [1.0, 3.0, 1.0], [4.0, 6.0, 4.0]))
    assert arm.tolist() == [1]
    assert after.rewards.tolist() == [[0.5, 1.5, 0.5]]
    assert after.counts.tolist() == [[2.0, 3.0, 2.0]]
    assert EpsilonGreedy().index(after)[0].tolist() == [0.25, 0.5, 0.25]


def test_untried_arms_come_first_and_ties_go_to_the_larger_rate(array: Make) -> None:
    bandit = EpsilonGreedy(epsilon=0.0)
    assert bandit.propose(made(array, [5.0, 0.0, 0.0], [1.0, 0.0, 0.0]))[0].tolist() == [1]
    assert bandit.propose(made(array, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]))[0].tolist() == [0]


def test_how_often_it_looks_around(array: Make) -> None:
    runs, arms = 20_000, 4
    arm, _ = EpsilonGreedy(epsilon=0.4).propose(made(array, [0.0, 1.0, 0.0, 0.0], [1.0] * arms, runs))
    shares = np.bincount(np.asarray(arm), minlength=arms) / runs
    assert shares.tolist() == pytest.approx([0.1, 0.7, 0.1, 0.1], abs=0.01)  # 0.4 / 4 each, and 0.6 for the best


def test_epsilon_one_proposes_any_arm(array: Make) -> None:
    arm, _ = EpsilonGreedy(epsilon=1.0).propose(made(array, [0.0, 9.0], [1.0, 1.0], 1000))
    assert 400 < int(arm.sum()) < 600
