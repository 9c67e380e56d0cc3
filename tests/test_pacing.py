"""When a step searches: the same answers for one run in plain numbers and for many in arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hotswap.errors import SettingError
from hotswap.pacing import Pace, PaceState

ONE = PaceState(-1, 0.0, 0.0)


def walk(pace: Pace, losses: list[float], unsure: list[bool] | None = None) -> tuple[list[bool], PaceState]:
    """Which steps search, and the state after them."""
    state, searched = ONE, []
    for number, loss in enumerate(losses):
        state = pace.follow(state, loss)
        searched.append(bool(pace.due(state, unsure[number] if unsure else False)))
        state = pace.after(state, searched[-1])
    return searched, state


@pytest.mark.parametrize(("every", "expected"), [(1, "111111"), (2, "101010"), (3, "100100"), (9, "100000")])
def test_every_nth_step_searches_and_the_first_does(every: int, expected: str) -> None:
    assert walk(Pace(every), [1.0] * 6)[0] == [mark == "1" for mark in expected]


def test_it_searches_while_the_bandit_is_unsure() -> None:
    unsure = [False, False, True, True, False]
    assert walk(Pace(None, "unsure"), [1.0] * 5, unsure)[0] == [True, False, True, True, False]
    assert walk(Pace(3, "unsure"), [1.0] * 5, [False, True, False, False, False])[0] == [True, True, False, False, True]


def test_it_searches_when_the_mean_has_risen_above_that_of_the_latest_search() -> None:
    pace = Pace(None, "risen", memory=0.5)
    searched, state = walk(pace, [4.0, 2.0, 4.0, 8.0, 5.0])
    # the mean is 4, 3, 3.5, 5.75, 5.375; it is compared with 4 until the fourth step, which searches, then with 5.75
    assert searched == [True, False, False, True, False]
    assert state == PaceState(1, 5.375, 5.75)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_leaves_the_mean(bad: float) -> None:
    state = PaceState(3, 2.0, 1.0)
    assert Pace(5).follow(state, bad) == state


@pytest.mark.parametrize("when", [None, "unsure"])
def test_the_mean_is_followed_only_where_it_is_asked_for(when: Any) -> None:
    assert walk(Pace(2, when), [4.0, 2.0, 3.0])[1] == PaceState(0, 0.0, 0.0)


def test_many_runs_decide_as_each_of_them_alone(array: Callable[[Any], Any]) -> None:
    pace = Pace(4, "risen", memory=0.5)
    series = [[3.0, 2.0, 5.0, 1.0, 1.0, 9.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [6.0, 5.0, math.nan, 3.0, 2.0, 1.0]]
    state, together = pace.start(3, array.device), []  # type: ignore[attr-defined]
    for losses in zip(*series, strict=True):
        state = pace.follow(state, array(losses))
        due = pace.due(state, array([False, False, False]))
        together.append(due.tolist())
        state = pace.after(state, due)
    for run, losses in enumerate(series):
        searched, alone = walk(pace, list(losses))
        assert [step[run] for step in together] == searched
        assert [field[run].item() for field in state] == list(alone)
    assert [str(field.dtype).removeprefix("torch.") for field in state] == ["int64", "float64", "float64"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, r"Pace\(every=0\): every must be a whole number of at least 1"),
        ({"every": True}, "every must be a whole number"),
        ({"every": 1.5}, "every must be a whole number"),
        ({"when": "bored"}, r"when must be one of 'unsure', 'risen', or None"),
        ({"every": None}, "nothing would ever ask for a search"),
        ({"memory": 1.0}, r"memory must be in \[0, 1\)"),
        ({"memory": math.nan}, r"memory must be in \[0, 1\)"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Pace(**arguments)
