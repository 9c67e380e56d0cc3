"""How long rounds are, how many lanes race, and which lanes go on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from hotswap.race.judging import ACROSS, LEAST, TURN, Plan, Round, Score, kept, lost, noise, plan, ranked, score_of
from hotswap.race.lane import Lane, named
from tests.race.helpers import made, minibatches, perceptron, step

KINDS = ["m", "mmm", "ommm", "mmmas", "aaaabb", "abcd", "m" * 9, "abab"]
LENGTHS = [1, 39, 40, 100, 299, 300, 667, 1000, 4999, 20_000, 10**6]


@given(st.text("oma", min_size=1, max_size=9), st.integers(1, 10**6), st.floats(0.01, 0.9), st.booleans())
def test_losing_lanes_take_at_most_the_share_and_every_lane_is_judged_late_enough(
    kinds: str, total: int, share: float, judged: bool
) -> None:
    found = plan(kinds, total, share, judged=judged)
    assert 1 <= found.lanes <= len(kinds)
    if found.lanes == 1:
        assert not found.rounds
        return
    racing = list(kinds[: found.lanes])
    assert lost(racing, found.rounds) <= share * total
    steps = [one.until for one in found.rounds]
    assert steps == sorted(steps)
    assert steps[0] >= LEAST
    assert [one.across for one in found.rounds[:-1]] == [False] * (len(steps) - 1)
    assert found.rounds[-1].across == (len(set(racing)) > 1)
    assert found.rounds[-1].keep == 1
    if found.rounds[-1].across:
        assert steps[-1] >= round(min(ACROSS, share / 2 / (len(set(racing)) - 1)) * total)
    assert lost(racing, found.rounds) + steps[-1] <= total


@pytest.mark.parametrize("kinds", KINDS)
def test_shorter_runs_race_fewer_lanes_from_the_front_of_the_list(kinds: str) -> None:
    counts = [plan(kinds, total, 0.5).lanes for total in LENGTHS]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] == len(kinds)


@pytest.mark.parametrize("kinds", KINDS[1:])
@pytest.mark.parametrize("total", [100, 1000, 20_000, None])
def test_turns_fill_their_round_and_have_twenty_steps_where_the_round_has_so_many(
    kinds: str, total: int | None
) -> None:
    found, before = plan(kinds, total, 0.15), 0
    for number, one in enumerate(found.rounds):
        turns = found.turns(number)
        assert sum(turns) == one.until - before
        if one.until - before >= TURN:
            assert min(turns) >= TURN
        before = one.until


def test_lanes_take_turns_back_and_forth_and_as_many_steps_each() -> None:
    model = made(perceptron)
    lanes = [SGD(model.parameters(), lr=rate) for rate in (0.1, 0.2, 0.3)]
    race = hotswap.Race(model, lanes, total_steps=2000, judge=lambda _: 1.0)
    seen, switches = [], []
    for batch in minibatches(180):
        here = race.current.optimizer
        seen.append(here)
        if not switches or switches[-1] is not here:
            switches.append(here)
        step(model, race, batch)
    assert [seen.count(lane) for lane in lanes] == [60, 60, 60]
    assert switches == [*lanes, *lanes[1::-1], *lanes[1:]]  # the last of a pass begins the next one


MODEL = nn.Linear(3, 3)


def lanes_of(kind: type[Optimizer], *rates: float) -> list[Lane]:
    return named([kind(MODEL.parameters(), lr=rate) for rate in rates], None)


def muons(*rates: float) -> list[Lane]:
    return named([hotswap.Muon(MODEL, lr=rate) for rate in rates], None)


def test_a_score_is_of_the_last_third_of_the_losses_and_knows_how_sure_it_is() -> None:
    losses = [9.0] * 6 + [1.0, 3.0, 2.0]
    score = score_of(losses)
    assert score.mean == 2.0
    assert score.variance == pytest.approx(torch.tensor([1.0, 3.0, 2.0]).var().item() / 3)
    assert noise(score, Score(0.0)) == pytest.approx(2 * math.sqrt(1 / 3))
    assert score_of([]).mean == math.inf


@pytest.mark.parametrize(("second", "first_stays"), [(0.95, True), (0.85, False), (1.1, True), (math.inf, True)])
def test_the_first_of_a_kind_goes_on_unless_another_is_better_by_more_than_the_noise(
    second: float, first_stays: bool
) -> None:
    lanes = lanes_of(AdamW, 0.01, 0.003)
    scores = {lanes[0]: Score(1.0, 0.05**2 / 2), lanes[1]: Score(second, 0.05**2 / 2)}  # noise: 0.1
    assert ranked(lanes, scores, 2.0)[0] is lanes[0 if first_stays else 1]


def test_a_first_lane_without_a_finite_loss_goes_to_the_best_other_one() -> None:
    lanes = lanes_of(AdamW, 0.01, 0.003, 0.001)
    scores = {lanes[0]: Score(math.inf), lanes[1]: Score(1.0, 4.0), lanes[2]: Score(0.9, 4.0)}
    assert ranked(lanes, scores, 2.0)[0] is lanes[2]


@pytest.mark.parametrize(("larger", "wins"), [(0.1, False), (-0.1, True)])
def test_a_larger_rate_of_muon_must_have_come_twice_as_far(larger: float, wins: bool) -> None:
    """From a loss of 2 the first lane has come to 1; twice as far is 0."""
    lanes = muons(0.01, 0.03)
    assert (ranked(lanes, {lanes[0]: Score(1.0), lanes[1]: Score(larger)}, 2.0)[0] is lanes[1]) == wins
    smaller = muons(0.01, 0.003)
    assert ranked(smaller, {smaller[0]: Score(1.0), smaller[1]: Score(0.9)}, 2.0)[0] is smaller[1]
    adamw = lanes_of(AdamW, 0.01, 0.03)
    assert ranked(adamw, {adamw[0]: Score(1.0), adamw[1]: Score(0.9)}, 2.0)[0] is adamw[1]


def test_kinds_are_compared_in_the_last_round_alone() -> None:
    lanes = [*lanes_of(AdamW, 0.01, 0.003), *lanes_of(SGD, 0.1, 0.3)]
    means: Sequence[float] = (5.0, 6.0, 1.0, 2.0)
    scores = {lane: Score(mean) for lane, mean in zip(lanes, means, strict=True)}
    order = ranked(lanes, scores, 9.0)
    assert set(kept(order, scores, Round(20, 1))) == {lanes[0], lanes[2]}
    assert kept(sorted(scores, key=lambda lane: scores[lane].mean), scores, Round(90, 1, across=True)) == [lanes[2]]


@pytest.mark.parametrize(("own", "stays"), [(1.05, True), (1.15, False), (math.inf, False)])
def test_the_users_own_lane_only_yields_to_more_than_the_noise_and_in_the_last_round(own: float, stays: bool) -> None:
    mine = SGD(MODEL.parameters(), lr=0.1)
    lanes = named([mine, *[SGD(MODEL.parameters(), lr=rate) for rate in (0.2, 0.3)]], mine)
    scores = {lanes[0]: Score(own, 0.005 / 4), lanes[1]: Score(1.0, 0.005 / 4), lanes[2]: Score(2.0)}
    order = sorted(scores, key=lambda lane: scores[lane].mean)  # noise: 0.1
    assert lanes[0] in kept(order, scores, Round(20, 1))
    assert kept(order, scores, Round(90, 1, across=True)) == [lanes[0 if stays else 1]]


def test_two_equal_lanes_are_won_by_the_first_one() -> None:
    model = made(perceptron)
    lanes = [SGD(model.parameters(), lr=0.1) for _ in range(2)]
    race = hotswap.Race(model, lanes, total_steps=1000)
    for batch in minibatches(100):
        step(model, race, batch)
    assert race.winner is not None
    assert race.winner.optimizer is lanes[0]
    assert [one.name for one in race.standings()] == ["SGD 0.1", "SGD 0.1 #2"]


def test_a_bad_lane_of_the_users_loses_and_a_good_one_wins() -> None:
    for rate, wins in ((1e-6, False), (0.03, True)):
        model = made(perceptron)
        mine = AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        race = hotswap.Race(model, mine, total_steps=1000)
        for batch in minibatches(600):
            step(model, race, batch)
        assert race.winner is not None
        assert (race.winner.optimizer is mine) == wins
        assert len({one.dropped_at for one in race.standings()}) == 3  # within the kind, across kinds, never


def test_a_plan_of_one_lane_has_no_rounds() -> None:
    assert plan("mmm", 30, 0.15) == Plan(1, (), "the run is too short to race it")


def test_lanes_are_left_out_where_no_length_of_the_run_makes_them_cheap_enough() -> None:
    found = plan("abbbccc", 3000, 0.15, judged=True)
    assert found.lanes == 5
    assert found.left_out == "the race would take more than share=0.15 with it"
    assert plan("abbbccc", 3000, 0.3, judged=True).lanes == 7


def test_three_kinds_are_compared_earlier_than_two_within_the_same_share() -> None:
    two, three = (plan(kinds, 10**6, 0.15) for kinds in ("ab", "abc"))
    assert (two.lanes, three.lanes) == (2, 3)
    assert two.rounds[-1].until > three.rounds[-1].until
