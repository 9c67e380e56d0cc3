"""A race never makes a run fail: what is not finite costs a turn, and a winner that gets lost goes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import hotswap
from hotswap.race.winner import KEPT, WINDOW
from tests.race.helpers import equal, made, minibatches, perceptron, through_a_file

TOTAL = 1000


def values(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def lanes_of(model: nn.Module) -> list[Optimizer]:
    return [AdamW(model.parameters(), lr=0.01), AdamW(model.parameters(), lr=0.003)]


class Broken:
    """A model that diverges at some steps: in its loss, its gradient, or its weights."""

    def __init__(self, what: str, at: Sequence[int], lanes: Callable[[nn.Module], list[Optimizer]] = lanes_of) -> None:
        self.what, self.at, self.number = what, set(at), 0
        self.model = made(perceptron)
        self.lanes = lanes(self.model)

    def step(self, race: hotswap.Race, batch: Any) -> None:
        self.number += 1
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()
        first = next(self.model.parameters())
        assert first.grad is not None
        if self.number in self.at:
            if self.what == "loss":
                loss = loss * math.inf
            elif self.what == "gradient":
                first.grad[0, 0] = math.inf
            else:
                first.data[0, 0] = math.nan
        race.step(loss)
        race.zero_grad()


WAYS = ["loss", "gradient", "weight"]


@pytest.mark.parametrize("what", WAYS)
def test_what_is_not_finite_costs_the_lane_its_turn_and_no_rate(what: str) -> None:
    """The lane is back where its turn began, and takes the turn again at the end of the round."""
    broken = Broken(what, [5])
    race = hotswap.Race(broken.model, broken.lanes, total_steps=TOTAL, schedule=None)
    batches, here = minibatches(60), []
    start = values(broken.model)
    for batch in batches:
        here.append(race.current.optimizer)
        broken.step(race, batch)
    assert [here.count(lane) for lane in broken.lanes] == [40, 20]
    assert here[-1] is broken.lanes[0]
    assert race.winner is not None
    table = {one.number: one for one in race.standings()}
    assert [table[0].steps, table[1].steps] == [20, 20]
    assert not any("finite" in one.why for one in table.values())
    assert race.winner.optimizer.param_groups[0]["lr"] in (0.01, 0.003)
    alone = made(perceptron)
    assert equal(start, values(alone))
    optimizer = AdamW(alone.parameters(), lr=race.winner.optimizer.param_groups[0]["lr"])
    for batch in batches[40:] if race.winner.optimizer is broken.lanes[0] else batches[20:40]:
        nn.functional.cross_entropy(alone(batch[0]), batch[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert equal(values(broken.model), values(alone))


def test_an_infinite_state_costs_the_turn_where_the_weights_stay_finite() -> None:
    """An optimizer of signs takes finite steps for ever after an infinite gradient."""
    from pytorch_optimizer import Lion  # noqa: PLC0415 - slow to import

    broken = Broken("gradient", [5], lambda model: [Lion(model.parameters(), lr=r) for r in (1e-3, 3e-4)])
    race = hotswap.Race(broken.model, broken.lanes, total_steps=TOTAL)
    for batch in minibatches(60):
        broken.step(race, batch)
    assert race.winner is not None
    assert [one.steps for one in race.standings()] == [20, 20]


@pytest.mark.parametrize("lane", [0, 1])
def test_a_lane_that_repeats_it_is_dropped(lane: int) -> None:
    first = [5, 45] if lane == 0 else [25, 45]
    broken = Broken("loss", first)
    race = hotswap.Race(broken.model, broken.lanes, total_steps=TOTAL)
    for batch in minibatches(60):
        broken.step(race, batch)
    assert race.winner is not None
    assert race.winner.optimizer is broken.lanes[1 - lane]
    last = race.standings()[-1]
    assert (last.number, last.dropped_at) == (lane, 60)
    assert "not finite in 2 turns in a row" in last.why
    assert all(value.isfinite().all() for value in values(broken.model))


def test_a_race_in_which_nothing_is_ever_finite_ends_and_raises_nothing() -> None:
    broken = Broken("gradient", range(1, 500))
    race = hotswap.Race(broken.model, broken.lanes, total_steps=400)
    start = values(broken.model)
    for batch in minibatches(400):
        broken.step(race, batch)
    assert race.winner is not None
    assert equal(values(broken.model), start)


def test_nan_in_the_last_steps_ends_at_the_last_good_snapshot() -> None:
    broken = Broken("weight", [395], lambda model: [SGD(model.parameters(), lr=0.1)])
    race = hotswap.Race(broken.model, broken.lanes, total_steps=400)
    snapshots = []
    for batch in minibatches(400):
        broken.step(race, batch)
        snapshots.append(values(broken.model))
    assert max(WINDOW, KEPT * 400) == WINDOW
    assert equal(values(broken.model), snapshots[349])


def driven(losses: Callable[[int], float], steps: int, **settings: Any) -> tuple[list[float], list[int], Any]:
    """A winner whose losses are made up: its relative rates, its own numbers of steps, and the race."""
    model = made(perceptron)
    optimizer = SGD(model.parameters(), lr=0.1)
    race = hotswap.Race(model, [optimizer], schedule=None, **settings)
    rates, taken = [], []
    optimizer.register_step_pre_hook(lambda o, *_: rates.append(o.param_groups[0]["lr"] / 0.1))
    for number, (x, y) in enumerate(minibatches(steps)):
        nn.functional.cross_entropy(model(x), y).backward()
        race.step(losses(number))
        race.zero_grad()
        taken.append(race.standings()[0].steps)
    return rates, taken, race


def test_a_winner_that_loses_all_it_had_gained_goes_back_with_a_third_of_its_rate_at_most_twice() -> None:
    """After two rollbacks in vain the objective has changed: the rate comes back, and training goes on."""

    def losses(number: int) -> float:
        return (2.0 if number < 50 else 1.0 if number < 150 else 3.0) + number % 2 / 100

    rates, taken, _ = driven(losses, 1000)
    distinct = [rate for before, rate in zip([0.0, *rates], rates, strict=False) if rate != before]
    assert distinct == pytest.approx([1, 1 / 3, 1 / 9, 1])
    backwards = [before - after for before, after in pairwise(taken) if after < before]
    assert len(backwards) == 2
    assert taken[-1] == 1000 - sum(backwards) - 2  # the steps at which it went back were lost as well


def test_a_winner_that_recovers_with_a_smaller_rate_goes_on_with_it() -> None:
    state = {"lost": 0}

    def losses(number: int) -> float:
        state["lost"] += number == 249
        high = 150 <= number < 250
        return (2.0 if number < 50 else 3.0 if high else 1.0) + number % 2 / 100

    rates, taken, _ = driven(losses, 600)
    assert rates[-1] == pytest.approx(1 / 3)
    assert sum(after < before for before, after in pairwise(taken)) == 1


@pytest.mark.parametrize(
    "losses",
    [
        lambda number: 1.0 + number / 100,  # annealing
        lambda number: 2.0 + math.sin(number / 60) + number % 2 / 100,  # a game
        lambda number: -math.exp(number / 200),  # returns of a policy, with the sign turned
        lambda number: 1.0 if number < 300 else 100.0,  # another objective
    ],
)
def test_losses_that_rise_on_purpose_raise_nothing_and_end_at_the_full_rate_or_a_third_of_it(
    losses: Callable[[int], float],
) -> None:
    rates, _, race = driven(losses, 900)
    assert rates[-1] >= 1 / 9
    assert len(rates) == 900
    assert race.winner is not None


def test_snapshots_are_kept_after_the_objective_has_changed() -> None:
    """Long after two rollbacks in vain, what is not finite costs a few windows and not the run since then."""

    def losses(number: int) -> float:
        if number == 1990:
            return math.nan
        return (2.0 if number < 50 else 1.0 if number < 150 else 3.0) + number % 2 / 100

    _, taken, _ = driven(losses, 2000)
    assert taken[-1] > 1000


def test_rates_are_those_of_the_rollback_also_where_a_snapshot_was_taken_before_it() -> None:
    """A window that is not finite after a rollback brings back a snapshot with the full rate in its groups."""

    def losses(number: int) -> float:
        if number == 270:
            return math.inf
        return (2.0 if number < 50 else 3.0 if 150 <= number < 250 else 1.0) + number % 2 / 100

    rates, _, _ = driven(losses, 400)
    assert rates[251:] == pytest.approx([1 / 3] * 149)


def test_a_users_schedule_is_at_the_step_of_the_run_after_a_rollback() -> None:
    model = made(perceptron)
    optimizer = SGD(model.parameters(), lr=0.1)
    race = hotswap.Race(model, [optimizer], schedule=lambda lane: LambdaLR(lane, lambda n: 1 - n / 400))
    used = []
    optimizer.register_step_pre_hook(lambda o, *_: used.append(o.param_groups[0]["lr"] / 0.1))
    for number, (x, y) in enumerate(minibatches(300)):
        nn.functional.cross_entropy(model(x), y).backward()
        race.step(math.inf if number == 120 else 1.0)
        race.zero_grad()
    assert race.standings()[0].steps < 300
    assert used == pytest.approx([1 - n / 400 for n in range(300)])


def test_it_resumes_exactly_around_lost_turns_and_rollbacks() -> None:
    """Made-up losses: a turn of each lane is lost, the winner goes back twice, and at last everything is lost."""

    def loss_of(number: int) -> float:
        lost = number in (5, 30, 290)
        return math.nan if lost else (2.0 if number < 130 else 1.0 if number < 180 else 3.0) + number % 2 / 100

    def made_race(seed: int) -> tuple[nn.Module, hotswap.Race]:
        model = made(perceptron, seed)
        return model, hotswap.Race(model, lanes_of(model), total_steps=400, share=0.5)

    def run(model: nn.Module, race: hotswap.Race, begin: int) -> Iterator[int]:
        for number, (x, y) in list(enumerate(minibatches(330)))[begin:]:
            yield number
            nn.functional.cross_entropy(model(x), y).backward()
            race.step(loss_of(number))
            race.zero_grad()

    model, race = made_race(0)
    saved = {n: through_a_file([model.state_dict(), race.state_dict()]) for n in run(model, race, 0) if n % 23 == 0}
    assert sum(one.steps for one in race.standings()) < 250
    for begin, (weights, state) in saved.items():
        again, other = made_race(5)
        again.load_state_dict(weights)
        other.load_state_dict(state)
        for _ in run(again, other, begin):
            pass
        assert equal(values(again), values(model)), begin
        assert str(other.standings()) == str(race.standings())
        assert other.param_groups[0]["lr"] == race.param_groups[0]["lr"]
