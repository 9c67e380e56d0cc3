"""Damaged checkpoints of races: each loads and can be trained on, or is refused in a sentence and changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LambdaLR

import hotswap
from hotswap import CheckpointError
from tests.optim.test_damaged_checkpoints import damaged, frozen, paths
from tests.race.helpers import (
    Sparse,
    made,
    minibatches,
    perceptron,
    step,
    tensors_of,
    three,
    through_a_file,
    two,
    with_dropout_and_norm,
)

Build = Callable[[], nn.Module]


def judge(model: nn.Module) -> float:
    return float(next(model.parameters()).norm())


def of_tensors(model: nn.Module) -> list[Optimizer]:
    return [AdamW(model.parameters(), lr=torch.tensor(rate)) for rate in (0.01, 0.003)]


SETUPS: dict[str, tuple[Build, Callable[..., Any], dict[str, Any], int]] = {
    "before the first step": (perceptron, three, {}, 0),
    "in a turn": (perceptron, three, {}, 30),
    "batch norm": (with_dropout_and_norm, three, {}, 47),
    "a judge": (with_dropout_and_norm, three, {"judge": judge}, 47),
    "the winner": (perceptron, three, {}, 85),
    "the winner, judged": (perceptron, three, {"judge": judge}, 88),
    "schedulers": (perceptron, two, {"schedule": lambda o: LambdaLR(o, lambda n: 1 / (1 + n))}, 30),
    "rounds that end at once": (Sparse, three, {"total_steps": 80}, 60),
    "no average": (perceptron, two, {"average": False}, 30),
    "rates as tensors": (perceptron, of_tensors, {}, 30),
    "no end": (perceptron, two, {"total_steps": None}, 30),
}


def raced(name: str, *, seed: int = 0, most: int = 100) -> tuple[nn.Module, hotswap.Race]:
    build, lanes, settings, steps = SETUPS[name]
    model = made(build, seed)
    race = hotswap.Race(model, lanes(model), **{"total_steps": 90, "share": 0.5, **settings})
    for batch in minibatches(min(steps, most)):
        step(model, race, batch)
    return model, race


def everything(model: nn.Module, race: hotswap.Race) -> Any:
    return frozen([race.state_dict(), list(tensors_of(model, race)), str(race.standings())])


def used(model: nn.Module, race: hotswap.Race) -> None:
    """It can be trained on, looked at, and saved."""
    left = 25 if race.total_steps is None else min(25, race.total_steps - race.steps)
    for batch in minibatches(left, seed=4):
        step(model, race, batch)
    race.eval()
    race.train()
    assert str(race.standings())
    race.load_state_dict(through_a_file(race.state_dict()))


def tried(name: str, mutations: int) -> int:
    """How many of so many damaged checkpoints are refused."""
    chance, refused = random.Random(f"race {name}"), 0
    state = through_a_file(raced(name)[1].state_dict())
    places = list(paths(state))
    model, race = raced(name, seed=1, most=4)
    before = everything(model, race)
    for _ in range(mutations):
        changed, what = damaged(state, places, chance)
        try:
            race.load_state_dict(changed)
        except CheckpointError as error:
            refused += 1
            said = str(error)
            assert said.isprintable(), what
            assert said.endswith("."), what
            assert len(said) < 700, what
            assert everything(model, race) == before, what
            continue
        except BaseException as error:
            raise AssertionError(what) from error
        try:
            used(model, race)
        except Exception as error:
            raise AssertionError(what) from error
        model, race = raced(name, seed=1, most=4)
    return refused


@pytest.mark.parametrize("name", SETUPS)
def test_what_is_whole_is_loaded(name: str) -> None:
    model, race = raced(name)
    state, weights = through_a_file(race.state_dict()), through_a_file(model.state_dict())
    for most in (0, 4):
        again, other = raced(name, seed=1, most=most)
        again.load_state_dict(weights)
        other.load_state_dict(state)
        assert str(other.standings()) == str(race.standings())
        step(again, other, minibatches(1)[0])
        other.load_state_dict(state)
        assert frozen(other.state_dict()["race"]["model"]) == frozen(state["race"]["model"])


class ByModel(Optimizer):
    """It trains the weights that it finds in the model."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        self.model = model
        super().__init__(model.parameters(), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for p in self.model.parameters():
            p.sub_(p.grad, alpha=self.param_groups[0]["lr"] * float(torch.rand(())))


class Within(SGD):
    """Its step is one of another class, with the hooks of that."""

    def step(self, closure: None = None) -> None:
        super().step(closure)


@pytest.mark.parametrize(
    "lane",
    [
        lambda model, rate: AdamW(model.parameters(), lr=torch.tensor(rate)),
        ByModel,
        lambda model, rate: Within(SGD(model.parameters()).param_groups, lr=rate),
    ],
    ids=["rate as a tensor", "weights in the model", "hooks"],
)
def test_a_checkpoint_is_looked_at_without_a_trace(lane: Callable[..., Optimizer]) -> None:
    seen: list[object] = []

    def raced(steps: int) -> tuple[nn.Module, hotswap.Race]:
        model = made(perceptron, 0)
        lanes = [lane(model, 0.1), lane(model, 0.2)]
        race = hotswap.Race(model, lanes, total_steps=400, share=0.5)
        for batch in minibatches(steps):
            step(model, race, batch)
        lanes[0].register_step_post_hook(lambda *_: seen.append(0))
        return model, race

    state = through_a_file(raced(30)[1].state_dict())
    state["race"]["lanes"][1]["steps"] = -1
    model, race = raced(3)
    model(minibatches(1)[0][0]).sum().backward()
    before = frozen([everything(model, race), torch.get_rng_state()])
    with pytest.raises(CheckpointError, match="no number of steps"):
        race.load_state_dict(state)
    assert frozen([everything(model, race), torch.get_rng_state()]) == before
    assert not seen


SCHEDULES: dict[str, Callable[[Optimizer], Any]] = {
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.1, total_iters=5), schedulers.CosineAnnealingLR(o, 90)], [5]
    ),
    "chained": lambda o: schedulers.ChainedScheduler([schedulers.LinearLR(o, 0.1), schedulers.ExponentialLR(o, 0.99)]),
    "milestones": lambda o: schedulers.MultiStepLR(o, [5, 20]),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_lanes_are_looked_at_without_a_trace_and_loaded(name: str) -> None:
    def scheduled(steps: int) -> tuple[nn.Module, hotswap.Race]:
        model = made(perceptron, 0)
        race = hotswap.Race(model, two(model), total_steps=200, share=0.5, schedule=SCHEDULES[name])
        for batch in minibatches(steps):
            step(model, race, batch)
        return model, race

    state = through_a_file(scheduled(30)[1].state_dict())
    model, race = scheduled(3)
    before = everything(model, race)
    damaged_ = {**state["race"], "lanes": [state["race"]["lanes"][0], {**state["race"]["lanes"][1], "steps": -1}]}
    with pytest.raises(CheckpointError, match="no number of steps"):
        race.load_state_dict({**state, "race": damaged_})
    assert everything(model, race) == before
    race.load_state_dict(state)
    assert race.steps == 30
    step(model, race, minibatches(1)[0])


def test_odd_but_whole_checkpoints_are_loaded() -> None:
    """A judge raised an error in several steps, and losses were larger than those of most runs."""
    heard: list[int] = []

    def late(_: nn.Module) -> float:
        heard.append(0)
        if len(heard) < 4:
            raise ValueError
        return 1.0

    model = made(perceptron, 0)
    race = hotswap.Race(model, two(model), total_steps=90, share=0.5, judge=late)
    batches = minibatches(90)
    while len(heard) < 3:
        race.zero_grad()
        nn.functional.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
        with suppress(ValueError):
            race.step(3e38)
    model = made(perceptron, 1)
    other = hotswap.Race(model, two(model), total_steps=90, share=0.5, judge=late)
    other.load_state_dict(through_a_file(race.state_dict()))
    step(model, other, batches[1])
    assert len(heard) > 3
    assert other.steps == race.steps + 1


def test_lanes_that_keep_their_state_elsewhere_say_which_setting_to_give() -> None:
    race, other = (
        hotswap.Race(model := made(perceptron), [AdamW(model.parameters(), capturable=capturable)], total_steps=90)
        for capturable in (False, True)
    )
    with pytest.raises(CheckpointError, match="make the optimizer with capturable=False"):
        other.load_state_dict(race.state_dict())


@pytest.mark.parametrize("name", SETUPS)
def test_damage_is_refused_or_does_no_harm(name: str) -> None:
    assert 10 < tried(name, 40) < 40


@pytest.mark.soak
@pytest.mark.parametrize("name", SETUPS)
def test_a_thousand_damages_are_refused_or_do_no_harm(name: str) -> None:
    assert 250 < tried(name, 1000) < 1000
