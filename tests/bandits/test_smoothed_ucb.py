"""Smoothed UCB against numbers worked out by hand, and what it is told of its arms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hotswap import Arms, CheckpointError, DiscountedUCB, SettingError, SmoothedUCB, log_grid
from hotswap.states import arrays_of, replaced

Make = Any
BESIDE, NEXT = math.exp(-0.5), math.exp(-2.0)  # the kernel at one width and at two


def shown(bandit: SmoothedUCB, array: Make, rewards: list[float], counts: list[float]) -> Any:
    state = bandit.start(1, len(rewards), array.device)
    return replaced(state, rewards=array([rewards]) * 1.0, counts=array([counts]) * 1.0)


def test_index_by_hand(array: Make) -> None:
    bandit = SmoothedUCB(width=0.25, exploration=2.0)
    state = shown(bandit, array, [0.2, 0.0, 0.5], [2.0, 0.0, 1.0])  # n = 3
    counts = [2 + NEXT, 3 * BESIDE, 2 * NEXT + 1]
    sums = [0.2 + 0.5 * NEXT, 0.7 * BESIDE, 0.2 * NEXT + 0.5]
    expected = [total / n + math.sqrt(2 * math.log(3) / n) for total, n in zip(sums, counts, strict=True)]
    assert bandit.index(state)[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_uneven_rates_by_hand(array: Make) -> None:
    bandit = SmoothedUCB(width=0.5, exploration=0.0, rates=(10.0, 1.0, 0.1 ** (1 / 2)))
    state = shown(bandit, array, [0.0, 0.3, 0.0], [1.0, 1.0, 1.0])
    far = math.exp(-0.5 * 9)  # 1.5 decades, three widths
    expected = [0.3 * NEXT / (1 + NEXT + far), 0.3 / (1 + NEXT + BESIDE), 0.3 * BESIDE / (1 + BESIDE + far)]
    assert bandit.index(state)[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_three_widths_away_nothing_is_known(array: Make) -> None:
    bandit = SmoothedUCB()
    state = shown(bandit, array, [0.0] * 4 + [0.1] + [0.0] * 5, [0.0] * 4 + [1.0] + [0.0] * 5)
    assert [math.isfinite(value) for value in bandit.index(state)[0].tolist()] == [False] + [True] * 7 + [False] * 2
    assert bandit.propose(state)[0].tolist() == [0]


def test_the_first_steps_stride_through_the_grid(array: Make) -> None:
    bandit = SmoothedUCB()
    state, proposed = bandit.start(1, 33, array.device), []
    for _ in range(9):
        arm, state = bandit.propose(state)
        proposed.append(arm.item())
        state = bandit.observe(state, arm[:, None], array([[0.0]]))
    assert proposed == [0, 4, 8, 12, 16, 20, 24, 28, 32]


def test_the_proposal_discounts_first(array: Make) -> None:
    _, after = SmoothedUCB(discount=0.5).propose(shown(SmoothedUCB(), array, [1.0, 3.0], [2.0, 3.0]))
    assert after.rewards.tolist() == [[0.5, 1.5]]
    assert after.counts.tolist() == [[1.0, 1.5]]


def test_a_narrow_kernel_is_discounted_ucb(array: Make) -> None:
    narrow, plain = SmoothedUCB(width=1e-3, exploration=0.1), DiscountedUCB(exploration=0.1)
    state = shown(narrow, array, [0.5, -0.2, 0.0], [3.0, 2.0, 0.0])
    other = replaced(plain.start(1, 3, array.device), rewards=state.rewards, counts=state.counts)
    assert narrow.index(state).tolist() == plain.index(other).tolist()


def test_rewards_count_up_to_the_bound(array: Make) -> None:
    bandit = SmoothedUCB(bound=0.5)
    state = bandit.observe(bandit.start(1, 2, array.device), array([[0, 1, 1]]), array([[-100.0, 0.25, 3.0]]))
    assert state.rewards.tolist() == [[-0.5, 0.75]]


class TestKnowing:
    def test_the_rates_of_a_grid(self) -> None:
        told = SmoothedUCB().knowing(Arms.of({"lr": log_grid(1, 1e-2, 3)}))
        assert told == SmoothedUCB(rates=log_grid(1, 1e-2, 3), row=3)
        assert told.start(2, 3).decades.tolist() == [pytest.approx([0.0, -1.0, -2.0])] * 2
        assert repr(told) == repr(SmoothedUCB())

    def test_rates_that_were_given_stay(self) -> None:
        bandit = SmoothedUCB(rates=(3.0, 2.0))
        assert bandit.knowing(Arms.of({"lr": [1, 0.1]})) is bandit

    def test_rows_do_not_inform_each_other(self, array: Make) -> None:
        bandit = SmoothedUCB(exploration=0.0).knowing(Arms.of({"lr": log_grid(1, 10**-0.5, 3), "momentum": [0.9, 0]}))
        state = shown(bandit, array, [0.3, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        assert bandit.index(state)[0].tolist() == pytest.approx([0.3, 0.3, 0.3] + [math.inf] * 3)
        state = shown(bandit, array, [0.3, 0.0, 0.0, 0.0, 0.0, -0.1], [1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
        expected = [0.3 / (1 + NEXT), 0.15, 0.3 * NEXT / (1 + NEXT), -0.1, -0.1, -0.1]
        assert bandit.index(state)[0].tolist() == pytest.approx(expected)

    @pytest.mark.parametrize(
        "choices", [{"momentum": [0.9, 0.5, 0.0]}, {"betas": [(0.9, 0.99), (0.5, 0.9)]}, {"weight_decay": [1, 0.1, -1]}]
    )
    def test_other_hyperparameters_are_apart_by_their_places(self, choices: Any) -> None:
        arms = Arms.of(choices)
        told = SmoothedUCB().knowing(arms)
        assert (told.rates, told.row) == (None, len(arms))
        decades = told.start(1, len(arms)).decades[0]
        assert np.diff(decades).tolist() == [-0.25] * (len(arms) - 1)

    def test_rows_of_something_else(self, array: Make) -> None:
        told = SmoothedUCB(exploration=0.0).knowing(Arms.of({"momentum": [0.9, 0.5], "eps": [1e-3, 1e-8]}))
        state = shown(told, array, [0.3, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0])
        assert told.index(state)[0].tolist() == pytest.approx([0.3, 0.3, math.inf, math.inf])


class TestLoading:
    def test_where_the_arms_are_is_a_setting(self) -> None:
        old, new = SmoothedUCB(rates=(1.0, 0.5)), SmoothedUCB(rates=(1.0, 0.1))
        saved = old.observe(old.begin(1, 2), [[0]], [[0.5]])
        state = new.restored(new.begin(1, 2), arrays_of(saved))
        assert state.decades.tolist() == [[0.0, -1.0]]
        assert state.rewards.tolist() == [[0.5, 0.0]]

    def test_another_size_is_refused(self) -> None:
        saved = arrays_of(SmoothedUCB().begin(1, 3))
        with pytest.raises(CheckpointError, match="of another size"):
            SmoothedUCB().restored(SmoothedUCB().begin(1, 2), saved)


def test_arms_that_make_no_whole_rows() -> None:
    with pytest.raises(SettingError, match="SmoothedUCB: 5 arms cannot be rows of 2"):
        SmoothedUCB(rates=(1.0, 0.1)).begin(1, 5)


def test_rates_from_a_file_are_a_list() -> None:
    rates: Any = [1.0, 0.1]
    assert SmoothedUCB(rates=rates) == SmoothedUCB(rates=(1.0, 0.1))
    assert hash(SmoothedUCB(rates=rates)) == hash(SmoothedUCB(rates=(1.0, 0.1)))
