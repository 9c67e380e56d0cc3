"""The winner is, bit for bit, its optimizer alone on the minibatches of its turns; a resumed race misses nothing."""

from __future__ import annotations

import copy

import pytest
import torch

import hotswap
from tests.race.helpers import (
    MODELS,
    copied,
    equal,
    loss_of,
    made,
    minibatches,
    step,
    tensors_of,
    three,
    through_a_file,
)

STEPS = 240


@pytest.mark.parametrize("kind", MODELS)
def test_the_winner_equals_its_optimizer_alone_on_the_minibatches_of_its_turns(kind: str) -> None:
    model = made(MODELS[kind])
    alone = copy.deepcopy(model)
    race = hotswap.Race(model, three(model), total_steps=STEPS, schedule=None, share=0.5)
    batches, seen = minibatches(STEPS), []
    for batch in batches:
        here = race._contest.here
        seen.append((here, batch, torch.get_rng_state()))
        step(model, race, batch)
    assert race.winner is not None
    assert any(lane.dropped_at for lane in race._contest.lanes)
    optimizer = three(alone)[race._contest.lanes.index(race.winner)]
    for lane, batch, numbers in seen:
        if lane is race.winner:
            torch.set_rng_state(numbers)
            loss_of(alone, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    theirs = [*alone.parameters(), *alone.buffers()]
    assert equal([*model.parameters(), *model.buffers()], theirs)


@pytest.mark.parametrize("kind", MODELS)
def test_a_race_goes_on_exactly_from_every_step(kind: str) -> None:
    steps = 90
    model = made(MODELS[kind])
    race = hotswap.Race(model, three(model), total_steps=steps, share=0.5)
    batches, saved, after = minibatches(steps), [], []
    for batch in batches:
        saved.append((through_a_file(model.state_dict()), through_a_file(race.state_dict()), torch.get_rng_state()))
        step(model, race, batch)
        after.append(list(tensors_of(model, race)))
    for number in range(0, steps, 1 if kind == "perceptron" else 7):
        again = made(MODELS[kind], seed=5)
        other = hotswap.Race(again, three(again), total_steps=steps, share=0.5)
        weights, state, numbers = saved[number]
        again.load_state_dict(weights)
        other.load_state_dict(state)
        torch.set_rng_state(numbers)
        for later in range(number, min(steps, number + 40)):
            step(again, other, batches[later])
        assert equal(list(tensors_of(again, other)), after[min(steps, number + 40) - 1]), number
        assert str(other.standings()) == str(other.standings())


@pytest.mark.parametrize("number", [0, 1, 19, 20, 35, 61, 80])
def test_a_copy_goes_on_as_the_original(number: int) -> None:
    model = made(MODELS["dropout and batch norm"])
    race = hotswap.Race(model, three(model), total_steps=90, share=0.5)
    batches = minibatches(90)
    for batch in batches[:number]:
        step(model, race, batch)
    again, other = copied(model, race)
    numbers = torch.get_rng_state()
    for one, its in ((model, race), (again, other)):
        torch.set_rng_state(numbers)
        for batch in batches[number:]:
            step(one, its, batch)
    assert equal(list(tensors_of(model, race)), list(tensors_of(again, other)))
    assert str(race.standings()) == str(other.standings())


def test_looking_at_what_would_be_handed_over_changes_nothing() -> None:
    found = []
    for looks in (False, True):
        model = made(MODELS["dropout and batch norm"])
        race = hotswap.Race(model, three(model), total_steps=120, share=0.5)
        for batch in minibatches(120):
            step(model, race, batch)
            if looks:
                race.eval()
                with torch.no_grad():
                    model.eval()
                    loss_of(model, batch)
                    model.train()
                race.state_dict()
                race.train()
        found.append(list(tensors_of(model, race)))
    assert equal(*found)
