"""The rates of lanes: the race's own schedule, others in its place, and runs whose length is told late."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import hotswap
from hotswap import SettingError
from hotswap.race.schedule import warmup_of
from tests.race.helpers import made, minibatches, perceptron, step

RATES = (0.1, 0.2)


def race_of(total: int | None, **settings: Any) -> tuple[nn.Module, hotswap.Race, list[tuple[int, int, float]]]:
    """A race of two lanes; and before each step, the steps of the run, those of the lane, and its relative rate."""
    model, used = made(perceptron), list[tuple[int, int, float]]()
    lanes = [SGD(model.parameters(), lr=rate) for rate in RATES]
    counts = dict.fromkeys(lanes, 0)

    def note(optimizer: Optimizer, *_: object) -> None:
        base = RATES[lanes.index(optimizer)]  # type: ignore[arg-type]
        used.append((len(used), counts[optimizer], optimizer.param_groups[0]["lr"] / base))  # type: ignore[index]
        counts[optimizer] += 1  # type: ignore[index]

    for lane in lanes:
        lane.register_step_pre_hook(note)
    return model, hotswap.Race(model, lanes, total_steps=total, **settings), used


def run(model: nn.Module, race: hotswap.Race, steps: int, after: Callable[[], Any] = lambda: None) -> None:
    for batch in minibatches(steps):
        step(model, race, batch)
        after()


def test_lanes_warm_up_in_their_own_steps_and_all_rates_fall_to_zero_over_the_run() -> None:
    total = 400
    model, race, used = race_of(total, share=0.2)
    run(model, race, total)
    assert {lane for _, lane, _ in used[:40]} == set(range(20))  # two lanes took turns
    for taken, lane, rate in used:
        assert rate == pytest.approx(min(1, (lane + 1) / warmup_of(total)) * (total - taken) / total)


@pytest.mark.parametrize("total", [400, None])
def test_without_a_schedule_rates_stay_as_they_are(total: int | None) -> None:
    model, race, used = race_of(total, schedule=None)
    run(model, race, 250)
    assert race.winner is not None
    assert {rate for *_, rate in used} == {1.0}


def test_a_run_of_unknown_length_warms_up_and_ends_over_the_steps_that_finish_is_given() -> None:
    model, race, used = race_of(None)
    run(model, race, 300)
    assert race.winner is not None
    assert [rate for _, lane, rate in used if lane >= warmup_of(None)] == [1.0] * (300 - 2 * warmup_of(None))
    race.finish(50)
    run(model, race, 50)
    assert [rate for *_, rate in used[300:]] == pytest.approx([(50 - n) / 50 for n in range(50)])
    with pytest.raises(SettingError, match="has taken all of its 350 steps"):
        step(model, race, minibatches(1)[0])


def test_finish_ends_a_race_that_is_under_way_and_its_decay_goes_on_from_where_it_is() -> None:
    model, race, used = race_of(2000)
    run(model, race, 50)
    assert race.winner is None
    race.finish(100)
    assert race.winner is not None
    run(model, race, 100)
    begin = (2000 - 50) / 2000
    rates = [rate / min(1, (lane + 1) / warmup_of(150)) for _, lane, rate in used[50:]]
    assert rates == pytest.approx([begin * (100 - n) / 100 for n in range(100)])
    assert race.total_steps == 150


def test_finish_without_a_schedule_only_ends_the_run() -> None:
    model, race, used = race_of(None, schedule=None)
    run(model, race, 10)
    race.finish(5)
    run(model, race, 5)
    assert {rate for *_, rate in used} == {1.0}
    assert race.total_steps == 15


def test_finish_before_the_first_step_is_a_length_that_is_told_late() -> None:
    model, race, used = race_of(None)
    race.finish(30)
    run(model, race, 30)
    assert used[-1][2] == pytest.approx(1 / 30)


def test_each_lane_has_a_scheduler_of_the_function_and_the_winners_is_moved_to_the_step_of_the_run() -> None:
    model, race, used = race_of(400, share=0.2, schedule=lambda lane: LambdaLR(lane, lambda n: 0.99**n))
    is_over: list[bool] = []
    run(model, race, 400, lambda: is_over.append(race.winner is not None))
    assert is_over.index(True) == 39  # the last step of the race
    for taken, lane, rate in used:
        assert rate == pytest.approx(0.99 ** (taken if taken > 39 else lane))


def test_a_rate_that_the_user_writes_replaces_the_schedule() -> None:
    model, race, used = race_of(200)
    run(model, race, 5)
    race.param_groups[0]["lr"] = RATES[0] / 4
    run(model, race, 5)
    assert [rate for *_, rate in used[5:]] == pytest.approx([0.25] * 5)


def test_a_program_that_writes_rates_into_the_default_lanes_is_told_once_that_they_scale() -> None:
    model = made(perceptron)
    race = hotswap.Race(model, total_steps=400)
    first = race.current.optimizer
    for number, batch in enumerate(minibatches(3)):
        for group in race.param_groups:
            group["lr"] = 1e-3 * (number + 1)
        if number:
            step(model, race, batch)  # a second warning would be an error
        else:
            with pytest.warns(UserWarning, match=r"rate 0\.001 into .* of all lanes by 0\.1,"):
                step(model, race, batch)
    assert first.param_groups[0]["lr"] == pytest.approx(3e-3)


def test_a_scheduler_reaches_every_group_of_every_lane() -> None:
    model = made(perceptron)
    weights, biases = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": weights, "lr": 0.01}, {"params": biases, "lr": 0.02}]
    lanes = [AdamW(groups), SGD([{"params": weights}, {"params": biases, "lr": 0.4}], lr=0.1)]
    race = hotswap.Race(model, lanes, total_steps=400)
    scheduler = LambdaLR(race, lambda n: 0.5**n)
    for number, batch in enumerate(minibatches(100)):
        lane = race.current.optimizer
        base = (0.01, 0.02) if lane is lanes[0] else (0.1, 0.4)
        step(model, race, batch)
        if lane is race.current.optimizer:
            assert [group["lr"] for group in lane.param_groups] == pytest.approx([rate * 0.5**number for rate in base])
        scheduler.step()
    assert math.isclose(race.param_groups[1]["lr"], 0.02 * 0.5**100)
