"""Exp3.S against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hotswap import Exp3S
from hotswap.bandits.exp3s import WeightState
from hotswap.states import replaced

Make = Any


def made(array: Make, weights: list[float], drawn: int, chance: float, runs: int = 1) -> WeightState:
    """Weights as they are, and rewards above zero that have the mean 0.1."""
    bandit = Exp3S()
    return replaced(
        bandit.begin(runs, len(weights), array.device, range(runs)),
        weights=array([[math.log(weight) for weight in weights]] * runs),
        drawn=array([drawn] * runs),
        chance=array([chance] * runs),
        gains=array([0.9] * runs),
        gained=array([9.0] * runs),
    )


def weights_of(state: WeightState) -> list[float]:
    return [math.exp(weight) for weight in state.weights[0].tolist()]


def test_chances_by_hand(array: Make) -> None:
    index = Exp3S(exploration=0.3).index(made(array, [0.7, 0.2, 0.1], -1, 1.0))
    assert index[0].tolist() == pytest.approx([0.7 * 0.7 + 0.1, 0.7 * 0.2 + 0.1, 0.7 * 0.1 + 0.1], abs=1e-12)


def test_arms_are_drawn_as_often_as_their_chances_say(array: Make) -> None:
    runs, bandit = 20_000, Exp3S(exploration=0.3)
    arm, after = bandit.propose(made(array, [0.7, 0.2, 0.1], -1, 1.0, runs))
    assert (np.bincount(np.asarray(arm)) / runs).tolist() == pytest.approx([0.59, 0.24, 0.17], abs=0.01)
    chances = np.array([0.59, 0.24, 0.17])[np.asarray(arm)]
    assert np.allclose(np.asarray(after.chance), chances, rtol=1e-12)
    assert after.drawn.tolist() == arm.tolist()
    assert after.gains[0].item() == pytest.approx(0.99 * 0.9)


def test_a_step_of_learning_by_hand(array: Make) -> None:
    # s = (0.9 + 0.15) / 10 = 0.105, x = 0.15 / 0.21 = 5/7; w1 grows by exp(0.2/3 · (5/7) / 0.25); all get e·0.03/3
    bandit = Exp3S(exploration=0.2, share=0.03)
    state = bandit.observe(made(array, [0.5, 0.3, 0.2], 1, 0.25), array([[1]]), array([[0.15]]))
    shared = math.e * 0.03 / 3
    raw = [0.5 + shared, 0.3 * math.exp(0.2 / 3 * (5 / 7) / 0.25) + shared, 0.2 + shared]
    assert weights_of(state) == pytest.approx([weight / sum(raw) for weight in raw], abs=1e-12)
    assert state.drawn.tolist() == [-1]
    assert (state.gains.item(), state.gained.item()) == pytest.approx((1.05, 10.0))
    assert state.counts.tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize(("reward", "paid"), [(-100.0, 0.0), (0.0, 0.0), (100.0, 1.0)])
def test_rewards_of_any_size_are_brought_into_0_to_1(array: Make, reward: float, paid: float) -> None:
    bandit = Exp3S(exploration=0.2, share=0.0)
    state = bandit.observe(made(array, [0.5, 0.5], 0, 0.4), array([[0]]), array([[reward]]))
    grown = 0.5 * math.exp(0.2 / 2 * paid / 0.4)
    assert weights_of(state)[0] == pytest.approx(grown / (0.5 + grown), abs=1e-12)


def test_only_the_trial_of_the_drawn_arm_is_learned_from(array: Make) -> None:
    bandit, start = Exp3S(), made(array, [0.5, 0.3, 0.2], 1, 0.25)
    others = bandit.observe(start, array([[0, 2]]), array([[0.3, 0.5]]))
    assert others.weights.tolist() == start.weights.tolist()
    assert others.drawn.tolist() == [1]
    assert others.counts.tolist() == [[1.0, 0.0, 1.0]]
    assert others.gains.item() == pytest.approx(1.7)  # the scale is that of all rewards
    learned = bandit.observe(others, array([[1]]), array([[0.2]]))
    assert learned.weights.tolist() != start.weights.tolist()
    again = bandit.observe(learned, array([[1]]), array([[0.2]]))
    assert again.weights.tolist() == learned.weights.tolist()  # a draw is learned from once


def test_later_trials_of_a_step_do_not_change_its_scale(array: Make) -> None:
    bandit, start = Exp3S(), made(array, [0.5, 0.3, 0.2], 1, 0.25)
    alone = bandit.observe(start, array([[1]]), array([[0.15]]))
    walked = bandit.observe(start, array([[1, 2, 1]]), array([[0.15, 90.0, 0.3]]))
    assert walked.weights.tolist() == alone.weights.tolist()
    before = bandit.observe(start, array([[2, 1]]), array([[90.0, 0.15]]))
    assert before.weights.tolist() != alone.weights.tolist()


def test_before_the_first_draw_nothing_is_learned(array: Make) -> None:
    bandit = Exp3S()
    start = bandit.begin(1, 2, array.device)
    assert bandit.observe(start, array([[0, 1]]), array([[1.0, 2.0]])).weights.tolist() == start.weights.tolist()


@pytest.mark.parametrize("share", [0.0, 1e-3, 1.0])
def test_weights_stay_weights_for_long(share: float) -> None:
    """The same arm is drawn and pays all, again and again, at the smallest probability there is."""
    bandit = Exp3S(exploration=0.5, share=share)
    state = bandit.begin(1, 3)
    for number in range(5000):
        drawn = replaced(state, drawn=np.array([0 if number < 4000 else 2]), chance=np.array([0.5 / 3]))
        state = bandit.observe(drawn, np.array([[0 if number < 4000 else 2]]), np.array([[100.0]]))
        assert np.isfinite(state.weights).all()
        assert np.exp(state.weights).sum() == pytest.approx(1.0, abs=1e-9)
    index = bandit.index(state)
    assert index.sum() == pytest.approx(1.0)
    assert (index >= 0.5 / 3).all()


def test_a_share_lets_a_late_arm_come_up() -> None:
    arms = {}
    for share in (0.0, 1e-2):
        bandit = Exp3S(share=share)
        state = bandit.begin(1, 2)
        for number in range(1500):
            arm, state = bandit.propose(state)
            best = 0 if number < 1000 else 1
            state = bandit.observe(state, arm[:, None], np.array([[1.0 if arm[0] == best else 0.0]]))
        arms[share] = bandit.index(state)[0, 1]
    assert arms[1e-2] > 0.6
    assert arms[0.0] < 0.3
