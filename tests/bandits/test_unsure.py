"""When a bandit takes its two best arms for equally good."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hotswap import (
    UCB1,
    Bandit,
    DiscountedUCB,
    EpsilonGreedy,
    Exp3S,
    FactoredBandit,
    FixedArm,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
)
from hotswap.bandits.base import best_two_overlap
from hotswap.states import replaced
from tests.bandits.bandits import InTurn

Make = Any


def after(bandit: Bandit, array: Make, trials: list[tuple[int, float]], arms: int = 3) -> Any:
    state = bandit.begin(1, arms, array.device)
    return bandit.observe(state, array([[arm for arm, _ in trials]]), array([[reward for _, reward in trials]]))


def test_by_hand(array: Make) -> None:
    # n = 4, c such that c ln 4 = 0.01: widths 0.1, 0.1 and 0.0707; the best mean is 0.5, the second one 0.25 or 0.35
    bandit = UCB1(exploration=0.01 / math.log(4))
    clear = after(bandit, array, [(0, 0.25), (1, 0.5), (2, 0.1), (2, 0.1)])
    assert bandit.unsure(clear).tolist() == [False]  # 0.4 is above 0.35
    close = after(bandit, array, [(0, 0.35), (1, 0.5), (2, 0.1), (2, 0.1)])
    assert bandit.unsure(close).tolist() == [True]  # 0.4 is below 0.45


def test_each_run_for_itself(array: Make) -> None:
    known = array([[True, True], [True, True], [True, False], [True, True]])
    means = array([[0.5, 0.1], [0.1, 0.3], [0.5, 0.1], [0.2, 0.2]])
    widths = array([[0.1, 0.1], [0.1, 0.2], [0.0, 0.0], [0.0, 0.0]])
    assert best_two_overlap(means, widths, known).tolist() == [False, True, True, True]


def test_only_the_best_two_matter(array: Make) -> None:
    means, widths = array([[0.5, 0.1, 0.0]]), array([[0.1, 0.1, 9.0]])
    assert best_two_overlap(means, widths, means > -1).tolist() == [False]


def test_means_below_zero(array: Make) -> None:
    means, widths = array([[-0.5, -0.1, -0.9]]), array([[0.1, 0.1, 0.1]])
    assert best_two_overlap(means, widths, means < 1).tolist() == [False]
    assert best_two_overlap(means, 3 * widths, means < 1).tolist() == [True]


def test_one_arm(array: Make) -> None:
    bandit = DiscountedUCB()
    assert bandit.unsure(bandit.begin(2, 1, array.device)).tolist() == [True, True]
    assert bandit.unsure(after(bandit, array, [(0, 0.1)], arms=1)).tolist() == [False]


CAREFUL: list[Bandit] = [
    DiscountedUCB(),
    UCB1(),
    SlidingWindowUCB(),
    EpsilonGreedy(),
    ThompsonSampling(),
    SmoothedUCB(width=0.05),
]


@pytest.mark.parametrize("bandit", CAREFUL, ids=repr)
class TestBanditsWithMeans:
    def test_an_arm_that_was_never_tried(self, bandit: Bandit, array: Make) -> None:
        assert bandit.unsure(bandit.begin(2, 3, array.device)).tolist() == [True, True]
        assert bandit.unsure(after(bandit, array, [(0, 0.5), (1, 0.01)])).tolist() == [True]

    def test_arms_far_apart(self, bandit: Bandit, array: Make) -> None:
        trials = [(0, 0.5), (1, 0.01), (2, -0.5)] * 3
        assert bandit.unsure(after(bandit, array, trials)).tolist() == [False]

    def test_equal_arms(self, bandit: Bandit, array: Make) -> None:
        trials = [(0, 0.25), (1, 0.25), (2, -0.5)] * 3
        assert bandit.unsure(after(bandit, array, trials)).tolist() == [True]


def test_thompson_sampling_learns_how_noisy_rewards_are(array: Make) -> None:
    bandit = ThompsonSampling()
    quiet = [(0, 0.10), (1, 0.06), (0, 0.102), (1, 0.058)]
    loud = [(0, 0.30), (1, 0.26), (0, -0.098), (1, -0.142)]  # the same means
    assert bandit.unsure(after(bandit, array, quiet, arms=2)).tolist() == [False]
    assert bandit.unsure(after(bandit, array, loud, arms=2)).tolist() == [True]
    more = loud * 200
    assert bandit.unsure(after(bandit, array, more, arms=2)).tolist() == [False]


def test_smoothed_ucb_goes_by_its_smoothed_means(array: Make) -> None:
    """Raw means are 0.1, 0.5 and 0.1; two arms beside each other share what they have earned."""
    trials = [(0, 0.1), (1, 0.5), (2, 0.1)]
    assert SmoothedUCB(width=0.05).unsure(after(SmoothedUCB(width=0.05), array, trials)).tolist() == [False]
    wide = SmoothedUCB(width=10.0, exploration=1e-4)
    assert wide.unsure(after(wide, array, trials)).tolist() == [True]


def test_exp3s_until_an_arm_has_half_of_the_weight(array: Make) -> None:
    bandit = Exp3S()
    state = bandit.begin(2, 3, array.device)
    assert bandit.unsure(state).tolist() == [True, True]
    weights = array([[0.4, 0.35, 0.25], [0.2, 0.6, 0.2]])
    state = replaced(state, weights=array([[math.log(weight) for weight in row] for row in weights.tolist()]))
    assert bandit.unsure(state).tolist() == [True, False]


def test_a_fixed_arm_never(array: Make) -> None:
    assert FixedArm(arm=1).unsure(FixedArm(arm=1).begin(2, 3, array.device)).tolist() == [False, False]


def test_a_factored_bandit_while_one_of_its_axes_is(array: Make) -> None:
    bandit = FactoredBandit(UCB1(), (2, 2))
    assert bandit.unsure(bandit.begin(1, 4, array.device)).tolist() == [True]

    def heard(trials: list[tuple[int, float]]) -> Any:
        begun = replaced(bandit.begin(1, 4, array.device), step=array([9]))
        return bandit.observe(begun, array([[arm for arm, _ in trials]]), array([[reward for _, reward in trials]]))

    half = [(0, 0.5), (1, 0.5), (2, 0.1), (3, 0.1)]  # the second axis makes no difference
    assert bandit.unsure(heard(half)).tolist() == [True]
    clear = [(0, 0.5), (1, 0.3), (2, 0.2), (3, 0.0)]
    assert bandit.unsure(heard(clear)).tolist() == [False]


def test_a_bandit_that_knows_no_means_always(array: Make) -> None:
    assert InTurn(3).unsure(InTurn(3).begin(2, 3, array.device)).tolist() == [True, True]
