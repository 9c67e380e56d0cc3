"""The bandit that does not adapt."""

from __future__ import annotations

from typing import Any

import pytest

from hotswap import Arms, FixedArm, SettingError, log_grid

Make = Any


def test_it_proposes_the_same_arm_and_counts_all(array: Make) -> None:
    bandit = FixedArm(arm=1)
    state = bandit.begin(2, 3, array.device)
    for _ in range(5):
        arm, state = bandit.propose(state)
        assert arm.tolist() == [1, 1]
        state = bandit.observe(state, array([[1, 2], [1, 2]]), array([[-1.0, 0.5], [-2.0, 0.25]]))
    assert bandit.counts(state).tolist() == [[0.0, 5.0, 5.0]] * 2
    assert bandit.means(state).tolist() == [[0.0, -1.0, 0.5], [0.0, -2.0, 0.25]]
    assert bandit.index(state).tolist() == [[0.0, 1.0, 0.0]] * 2
    assert bandit.unsure(state).tolist() == [False, False]


@pytest.mark.parametrize(("rate", "arm"), [(1.0, 0), (0.1, 1), (0.04, 1), (0.03, 2), (1e-2, 2), (1e9, 0), (1e-9, 2)])
def test_the_arm_with_the_nearest_rate(rate: float, arm: int) -> None:
    assert FixedArm(rate=rate).knowing(Arms.of({"lr": [0.01, 0.1, 1.0]})) == FixedArm(arm=arm)


def test_every_rate_of_a_grid_is_its_own_nearest() -> None:
    arms = Arms.of({"lr": log_grid()})
    assert [FixedArm(rate=rate).knowing(arms).arm for rate in log_grid()] == list(range(33))


def test_a_number_needs_no_arms() -> None:
    bandit = FixedArm(arm=2)
    assert bandit.knowing(Arms.of({"lr": [1, 2, 3]})) is bandit


def test_a_rate_means_nothing_among_several_hyperparameters() -> None:
    with pytest.raises(SettingError, match="a rate names no arm where momentum and lr are swapped; give the number"):
        FixedArm(rate=0.1).knowing(Arms.of({"lr": [1, 0.1], "momentum": [0, 0.9]}))


def test_an_arm_that_is_not_there() -> None:
    with pytest.raises(SettingError, match=r"^FixedArm\(arm=3\): there is no such arm; they are numbered 0 to 2\.$"):
        FixedArm(arm=3).begin(1, 3)


def test_a_rate_before_the_arms_are_known() -> None:
    with pytest.raises(SettingError, match=r"^FixedArm\(rate=0.1\): it has not been told what its arms stand for"):
        FixedArm(rate=0.1).begin(1, 3)
