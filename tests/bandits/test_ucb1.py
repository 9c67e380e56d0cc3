"""UCB1 against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hotswap import UCB1
from hotswap.bandits import BanditState

Make = Any


def made(array: Make, rewards: list[float], counts: list[float]) -> BanditState:
    return BanditState(array([rewards]) * 1.0, array([counts]) * 1.0, array([9]))


def test_index_by_hand(array: Make) -> None:
    # n = 2 + 4 + 1 = 7, c = 2: means 0.5, -0.25, 0; widths sqrt(2 ln 7 / count)
    index = UCB1(exploration=2.0).index(made(array, [1.0, -1.0, 0.0], [2.0, 4.0, 1.0]))
    assert index[0].tolist() == pytest.approx(
        [0.5 + 1.394958834179458, -0.25 + 0.986384851124376, 1.972769702248751], abs=1e-12
    )


def test_the_width_decides_between_close_means(array: Make) -> None:
    # n = 1 + 100, means 0.5 and 0.6; widths sqrt(c ln 101 / count) are 0.215 and 0.021 for c = 0.01
    state = made(array, [0.5, 60.0], [1.0, 100.0])
    assert UCB1(exploration=0.01).propose(state)[0].tolist() == [0]
    assert UCB1(exploration=0.0).propose(state)[0].tolist() == [1]


def test_untried_arms_come_first_the_lowest_index_before_the_others(array: Make) -> None:
    bandit = UCB1()
    state, proposed = bandit.start(1, 4, array.device), []
    for _ in range(4):
        arm, state = bandit.propose(state)
        proposed.append(arm.item())
        state = bandit.observe(state, arm[:, None], array([[0.1]]))
    assert proposed == [0, 1, 2, 3]
    walked = bandit.observe(bandit.start(1, 4, array.device), array([[0, 1, 2]]), array([[-9.0, -1.0, 0.1]]))
    assert bandit.propose(walked)[0].tolist() == [3]  # the walk of a search has tried the others


def test_nothing_is_forgotten(array: Make) -> None:
    bandit = UCB1()
    state = made(array, [0.3, 0.2], [2.0, 1.0])
    for _ in range(50):
        _, state = bandit.propose(state)
    assert state.rewards.tolist() == [[0.3, 0.2]]
    assert state.counts.tolist() == [[2.0, 1.0]]
    assert state.step.tolist() == [59]


def test_ties_go_to_the_larger_rate(array: Make) -> None:
    assert UCB1().propose(made(array, [1.0, 1.0], [1.0, 1.0]))[0].tolist() == [0]
