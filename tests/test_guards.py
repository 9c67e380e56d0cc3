"""When to go back: the same judgements for one run in plain numbers and for many in arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hotswap.errors import SettingError
from hotswap.guards import Guard, GuardState, Judgement
from hotswap.rewards import LogReduction, RelativeReduction

ONE = GuardState(-1, 0, 0.0, 0.0, 0.0, 0)
QUICK = Guard(factor=2.0, steps=2, every=3, memory=0.0)  # no memory: the mean is the loss


def walk(guard: Guard, losses: list[float], places: list[int] | None = None, row: int = 5) -> list[Judgement]:
    state, found = ONE, []
    for number, loss in enumerate(losses):
        place = places[number] if places else 1
        found.append(guard.judge(state, loss, place, row, LogReduction(), 0.0))
        state = found[-1].state
    return found


def test_the_first_loss_makes_a_snapshot_and_then_every_third() -> None:
    assert [j.keep for j in walk(QUICK, [1.0] * 7)] == [True, False, False, True, False, False, True]
    assert [j.state.steps for j in walk(QUICK, [1.0] * 5)] == [0, 1, 2, 0, 1]


def test_it_goes_back_when_the_mean_was_too_high_for_two_steps() -> None:
    found = walk(QUICK, [1.0, 2.5, 1.0, 2.5, 3.0])  # one step does not do, nor do two with another between
    assert [j.back for j in found] == [False, False, False, False, True]
    assert found[-1].earned == pytest.approx(-math.log(3.0), rel=1e-9)
    assert found[-1].state == GuardState(steps=0, above=0, mean=1.0, lowest=1.0, kept=1.0, ceiling=2)
    assert not found[3].keep  # it would be due, but the loss is high


def test_the_running_mean_counts_and_not_one_loss() -> None:
    guard = Guard(factor=2.0, steps=1, every=100, memory=0.75)
    found = walk(guard, [1.0, 4.0, 4.0])  # 1, 1.75, 2.3125
    assert [j.back for j in found] == [False, False, True]
    assert found[-1].earned == pytest.approx(-math.log(2.3125), rel=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_goes_back_at_once(bad: float) -> None:
    found = walk(QUICK, [1.0, 0.5, bad, 0.6])
    assert [j.back for j in found] == [False, False, True, False]
    assert found[2].earned == -100.0
    assert found[2].state.mean == 1.0
    assert found[3].state.mean == 0.6


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_there_is_no_way_back_before_the_first_snapshot(bad: float) -> None:
    found = walk(QUICK, [bad, bad, 2.0])
    assert [(j.back, j.keep) for j in found] == [(False, False), (False, False), (False, True)]
    assert found[1].state.steps == -1
    assert found[2].state.lowest == 2.0


def test_no_rate_as_large_is_taken_until_the_next_snapshot() -> None:
    bad = math.nan
    found = walk(QUICK, [1.0, bad, bad, 1.0, 1.0, 1.0], places=[0, 3, 4, 4, 4, 4])
    assert [j.state.ceiling for j in found] == [0, 4, 4, 4, 4, 0]  # the smallest of the row can always be taken
    state = found[1].state
    assert [Guard.lowered(state, arm, 5) for arm in (0, 3, 4, 5, 8, 9)] == [4, 4, 4, 9, 9, 9]
    assert Guard.lowered(ONE, 7, 5) == 7


def test_losses_below_zero_rise_by_the_logarithm_of_the_factor_in_units_of_the_reward() -> None:
    guard, reward = Guard(factor=math.e, steps=1, memory=0.0), RelativeReduction()
    state = guard.judge(ONE, -5.0, 0, 5, reward, 10.0).state
    assert not guard.judge(state, 4.9, 0, 5, reward, 10.0).back  # 0.99 of the scale
    assert guard.judge(state, 5.1, 0, 5, reward, 10.0).back


def test_many_runs_are_judged_as_each_of_them_alone(array: Callable[[Any], Any]) -> None:
    guard = Guard(factor=1.5, steps=2, every=3, memory=0.25)
    series = [
        [1.0, 0.8, 2.0, 3.0, 1.0, 0.5, 0.5],
        [1.0, math.nan, 1.0, math.inf, 0.9, 0.8, 0.7],
        [math.nan, 3.0, 2.0, 1.0, 4.0, 4.0, 4.0],
    ]
    places = [[0, 1, 2, 3, 4, 4, 4]] * 3
    state, together = guard.start(3, array.device), []  # type: ignore[attr-defined]
    for losses, where in zip(zip(*series, strict=True), zip(*places, strict=True), strict=True):
        judgement = guard.judge(state, array(losses), array(where), 5, LogReduction(), array([0.0, 0.0, 0.0]))
        together.append(judgement)
        state = judgement.state
    for run, losses in enumerate(series):
        for step, alone in enumerate(walk(guard, list(losses), places[run])):
            of_many = together[step]
            assert (bool(of_many.back[run]), bool(of_many.keep[run])) == (alone.back, alone.keep)
            assert float(of_many.earned[run]) == pytest.approx(alone.earned, rel=1e-12)
            if alone.state.steps >= 0:
                assert [float(field[run]) for field in of_many.state] == pytest.approx(list(alone.state), rel=1e-12)
    assert [str(field.dtype).removeprefix("torch.") for field in state] == [
        "int64", "int64", "float64", "float64", "float64", "int64",
    ]  # fmt: skip
    lowered = guard.lowered(state._replace(ceiling=array([0, 2, 4])), array([6, 6, 6]), 5)
    assert lowered.tolist() == [6, 7, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": 1.0}, r"Guard\(factor=1\.0\): factor must be finite and larger than 1"),
        ({"factor": math.inf}, "factor must be finite"),
        ({"steps": 0}, r"Guard\(steps=0\): steps must be a whole number of at least 1"),
        ({"every": 2.5}, "every must be a whole number"),
        ({"every": True}, "every must be a whole number"),
        ({"memory": -0.1}, r"memory must be in \[0, 1\)"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Guard(**arguments)
