"""When rounds end, how long the schedule rises and falls, and who is ranked where."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap.errors import SettingError
from hotswap.races import ROUNDS, Round, Schedule, highest_loss, nearest, plan_rounds, ranked, typical


def test_the_rounds_of_a_run_of_5000_steps() -> None:
    assert plan_rounds(ROUNDS, 6, 5000, 20) == [Round(0, 60, 4), Round(60, 150, 2), Round(150, 500, 1)]


def test_rounds_are_not_shorter_than_the_least() -> None:
    assert plan_rounds(ROUNDS, 6, 900, 20) == [Round(0, 20, 4), Round(20, 40, 2), Round(40, 90, 1)]


def test_rounds_of_a_run_of_unknown_length() -> None:
    assert plan_rounds(ROUNDS, 6, None, 20) == [Round(0, 60, 4), Round(60, 150, 2), Round(150, 500, 1)]
    assert plan_rounds([(30, 1)], 2, None, 20) == [Round(0, 30, 1)]


@pytest.mark.parametrize(("lanes", "kept"), [(2, [1]), (3, [2, 1]), (4, [2, 1]), (5, [4, 2, 1])])
def test_default_rounds_that_would_keep_all_are_left_out(lanes: int, kept: list[int]) -> None:
    assert [one.keep for one in plan_rounds(ROUNDS, lanes, 5000, 20)] == kept


def test_the_last_third_of_a_round_counts() -> None:
    assert Round(60, 150, 2).judged_from == 120
    assert Round(0, 1, 1).judged_from == 0
    assert Round(0, 20, 1).judged_from == 14


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rounds": ()}, "at least one round"),
        ({"rounds": 3}, "give pairs"),
        ({"rounds": [(0.1, 1, 2)]}, "give pairs"),
        ({"rounds": [(0.1, 6)]}, "keeps 6 lanes, but there are only 6"),
        ({"rounds": [(0.1, 9)]}, "keeps 9 lanes, but there are only 6"),
        ({"rounds": [(0.1, 2), (0.2, 2)]}, "the one before it keeps 2"),
        ({"rounds": [(0.1, 2), (0.1, 1)]}, "does not end after the one before it"),
        ({"rounds": [(0.1, 2), (50, 1)]}, "does not end after the one before it"),
        ({"rounds": [(0.1, 2)]}, "must keep 1, the winner"),
        ({"rounds": [(0.1, 0)]}, "whole number of at least 1"),
        ({"rounds": [(1.5, 1)]}, "a share below 1"),
        ({"rounds": [(-3, 1)]}, "ends after -3"),
        ({"rounds": [("soon", 1)]}, "ends after 'soon'"),
        ({"rounds": [(0.1, 1)], "total_steps": None}, "total_steps is not given"),
        ({"total_steps": 0}, "whole number of at least 1"),
        ({"total_steps": 1000.0}, "whole number of at least 1"),
        ({"least": 0}, "least must be"),
        ({"total_steps": 59}, "need at least 60 steps"),
        ({"total_steps": 30, "rounds": [(10, 2), (0.5, 1)]}, "need at least 40 steps"),
    ],
)
def test_rounds_that_make_no_race(settings: dict[str, object], sentence: str) -> None:
    given = {"rounds": ROUNDS, "lanes": 6, "total_steps": 1000, "least": 20} | settings
    with pytest.raises(SettingError, match=sentence) as caught:
        plan_rounds(**given)  # type: ignore[arg-type]
    assert str(caught.value).startswith("Race(")


@given(st.integers(1, 20_000), st.integers(1, 50), st.integers(2, 9))
def test_the_least_number_of_steps_is_the_least(total: int, least: int, lanes: int) -> None:
    """Either the rounds fit, or the sentence names the smallest number into which they do."""
    try:
        planned = plan_rounds(ROUNDS, lanes, total, least)
    except SettingError as error:
        enough = int(str(error).split("need at least ")[1].split(" ")[0])
        assert enough > total
        plan_rounds(ROUNDS, lanes, enough, least)
        with pytest.raises(SettingError):
            plan_rounds(ROUNDS, lanes, enough - 1, least)
    else:
        assert planned[-1].end <= total
        assert all(one.end - one.begin >= least for one in planned)
        assert planned[-1].keep == 1


def test_the_schedule() -> None:
    schedule = Schedule(1000, warmup=0.01, decay=0.4)
    assert [schedule.factor(step) for step in (0, 4, 9, 10, 599, 600)] == [0.1, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert schedule.factor(800) == pytest.approx(0.5)
    assert schedule.factor(999) == pytest.approx(1 / 400)
    assert schedule.factor(1000) == schedule.factor(5000) == 0
    assert schedule.factor(104, begun=100) == 0.5  # after the race began again
    assert schedule.factor(800, begun=799) == pytest.approx(0.2)  # whichever is smaller


def test_a_schedule_may_be_constant() -> None:
    assert Schedule(100, None, None).is_constant
    assert Schedule(None, 0).is_constant  # nobody knows where to fall
    assert not Schedule(100, 0).is_constant
    assert not Schedule(None).is_constant


def test_a_schedule_without_an_end() -> None:
    schedule = Schedule(None)
    assert schedule.factor(0) == pytest.approx(1 / 12)
    assert schedule.factor(11) == schedule.factor(10**9) == 1
    assert Schedule(None, None, None).factor(0) == Schedule(100, 0, 0).factor(99) == 1


@pytest.mark.parametrize(
    "shares", [{"warmup": -0.1}, {"decay": 1.5}, {"warmup": "long"}, {"warmup": 0.7, "decay": 0.4}]
)
def test_shares_that_are_none(shares: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="Race"):
        Schedule(100, **shares)  # type: ignore[arg-type]


def test_the_ranking() -> None:
    assert ranked([0.3, math.nan, 0.1, math.inf, 0.2]) == [2, 4, 0]
    assert ranked([1.0, 1.0]) == [0, 1]
    assert ranked([math.nan]) == []
    assert ranked([0.3, 0.1, 0.2], highest=0.2) == [1, 2]
    assert ranked([0.3, 0.1], highest=math.nan) == []


def test_a_step_of_lanes_of_which_some_have_diverged() -> None:
    assert typical([math.nan, 1.0, math.inf, 3.0, math.nan]) == 2.0
    assert math.isnan(typical([math.inf, math.nan]))


def test_the_leader_before_any_lane_was_judged() -> None:
    assert nearest([0.1, 0.01, 0.001], 0.004) == 1
    assert nearest([0.1, 0.01, 0.001], 1e-9) == 2


def test_the_loss_above_which_a_lane_has_diverged() -> None:
    assert highest_loss([2.0, 2.0]) == 3.0
    assert highest_loss([1.0, 3.0]) == 5.0  # they differ from their mean by 1
    assert highest_loss([-2.0, -2.0]) == -1.0
    assert highest_loss([0.0, 0.0]) == 0.0
