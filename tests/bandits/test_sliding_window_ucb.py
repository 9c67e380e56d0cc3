"""Sliding-window UCB against numbers worked out by hand, and against a list of all trials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap import SlidingWindowUCB

Make = Any


def shown(bandit: SlidingWindowUCB, array: Make, trials: list[tuple[int, float]], arms: int = 3) -> Any:
    state = bandit.start(1, arms, array.device)
    for arm, reward in trials:
        state = bandit.observe(state, array([[arm]]), array([[reward]]))
    return state


def test_index_by_hand(array: Make) -> None:
    bandit = SlidingWindowUCB(window=4, exploration=2.0)
    state = shown(bandit, array, [(2, 9.0), (0, 1.0), (0, 0.5), (1, 0.25), (0, 0.0)])  # the first has dropped out
    assert state.counts.tolist() == [[3.0, 1.0, 0.0]]
    assert state.rewards.tolist() == [[1.5, 0.25, 0.0]]
    # n = 4: 0.5 + sqrt(2 ln 4 / 3), 0.25 + sqrt(2 ln 4 / 1), and no trial
    assert bandit.index(state)[0].tolist() == pytest.approx([1.461351258, 1.915109222, math.inf], abs=1e-8)
    assert bandit.propose(state)[0].tolist() == [2]


def test_the_ring_by_hand(array: Make) -> None:
    bandit = SlidingWindowUCB(window=3)
    state = bandit.start(1, 2, array.device)
    assert state.arms.tolist() == [[2, 2, 2]]  # no arm yet
    state = bandit.observe(state, array([[1, 0]]), array([[0.5, 0.25]]))
    assert (state.arms.tolist(), state.paid.tolist(), state.position.tolist()) == ([[1, 0, 2]], [[0.5, 0.25, 0.0]], [2])
    state = bandit.observe(state, array([[1, 1]]), array([[0.1, 0.2]]))
    assert (state.arms.tolist(), state.paid.tolist(), state.position.tolist()) == ([[1, 0, 1]], [[0.2, 0.25, 0.1]], [1])


def test_more_trials_in_one_call_than_fit_into_the_window(array: Make) -> None:
    bandit = SlidingWindowUCB(window=2)
    trials = array([[0, 1, 2, 0, 1]])
    state = bandit.observe(bandit.start(1, 3, array.device), trials, array([[1.0, 2.0, 3.0, 4.0, 5.0]]))
    assert state.rewards.tolist() == [[4.0, 5.0, 0.0]]
    assert state.position.tolist() == [1]
    tried = array([[True, True, True, False, False]])
    state = bandit.observe(bandit.start(1, 3, array.device), trials, array([[1.0, 2.0, 3.0, math.nan, 5.0]]), tried)
    assert state.rewards.tolist() == [[0.0, 2.0, 3.0]]


def test_an_arm_that_drops_out_is_tried_again(array: Make) -> None:
    bandit = SlidingWindowUCB(window=5)
    state, proposed = bandit.start(1, 2, array.device), []
    for _ in range(20):
        arm, state = bandit.propose(state)
        proposed.append(arm.item())
        state = bandit.observe(state, arm[:, None], array([[1.0 if arm.item() else -1.0]]))
    assert proposed[:18] == [0, 1, 1, 1, 1, 1] * 3


@given(
    window=st.integers(1, 7),
    calls=st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100), st.booleans()), min_size=1, max_size=9), max_size=8
    ),
)
@settings(max_examples=60)
def test_the_window_is_the_end_of_the_list_of_trials(window: int, calls: list[list[tuple[int, float, bool]]]) -> None:
    bandit = SlidingWindowUCB(window=window)
    ours, theirs = bandit.start(1, 4), bandit.start(1, 4, torch.device("cpu"))
    for call in calls:
        arms, rewards, tried = (np.array([column]) for column in zip(*call, strict=True))
        ours = bandit.observe(ours, arms, rewards, tried)
        theirs = bandit.observe(theirs, *map(torch.from_numpy, (arms, rewards, tried)))
    last = [(arm, reward) for call in calls for arm, reward, tried in call if tried][-window:]
    for arm in range(4):
        paid = [reward for other, reward in last if other == arm]
        assert ours.counts[0, arm] == theirs.counts[0, arm] == len(paid)
        assert ours.rewards[0, arm] == pytest.approx(sum(paid), abs=1e-9)
        assert float(theirs.rewards[0, arm]) == pytest.approx(sum(paid), abs=1e-9)
