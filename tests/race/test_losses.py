"""How losses reach a race: as a number, as a closure's result, or before the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import hotswap
from hotswap import ClosureError
from tests.race.helpers import Batch, equal, loss_of, made, minibatches, step, two, with_dropout_and_norm


def plainly(model: nn.Module, race: hotswap.Race, batch: Batch) -> Any:
    loss = loss_of(model, batch)
    loss.backward()
    return race.step(loss)


def as_a_number(model: nn.Module, race: hotswap.Race, batch: Batch) -> Any:
    loss = loss_of(model, batch)
    loss.backward()
    return race.step(loss.item())


def forward_only(model: nn.Module, race: hotswap.Race, batch: Batch) -> Any:
    return race.step(lambda: loss_of(model, batch))


def with_backward(model: nn.Module, race: hotswap.Race, batch: Batch) -> Any:
    def closure() -> Tensor:
        race.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss.detach()

    return race.step(closure)


def backward_and_a_graph(model: nn.Module, race: hotswap.Race, batch: Batch) -> Any:
    def closure() -> Tensor:
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    with torch.no_grad():  # the closure has gradients all the same
        return race.step(closure)


def observed(model: nn.Module, race: hotswap.Race, batch: Batch) -> Any:
    loss = loss_of(model, batch)
    loss.backward()
    race.observe(loss)
    race.step()
    return loss


WAYS = [plainly, as_a_number, forward_only, with_backward, backward_and_a_graph, observed]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_give_the_loss_trains_and_judges_alike(way: Callable[..., Any]) -> None:
    found = []
    for one in (plainly, way):
        model = made(with_dropout_and_norm)
        race = hotswap.Race(model, two(model), total_steps=300, share=0.5)
        returned = []
        for batch in minibatches(90):
            returned.append(torch.as_tensor(one(model, race, batch), dtype=torch.float32).detach())
            race.zero_grad()
        found.append(([*map(Tensor.detach, model.parameters()), *model.buffers(), *returned], str(race.standings())))
    assert equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_a_closure_is_called_once() -> None:
    model = made(with_dropout_and_norm)
    race = hotswap.Race(model, two(model), total_steps=400)
    calls = []
    for batch in minibatches(30):

        def closure(batch: Batch = batch) -> Tensor:
            calls.append(1)
            return loss_of(model, batch)

        race.step(closure)
    assert len(calls) == 30


@pytest.mark.parametrize("result", [None, torch.tensor(1.0), 2.0])
def test_a_closure_without_a_loss_or_a_backward_pass_is_refused(result: Any) -> None:
    model = made(with_dropout_and_norm)
    race = hotswap.Race(model, two(model), total_steps=400)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ClosureError, match="return the loss with its graph, or call"):
        race.step(lambda: result)
    assert equal(before, [p.detach() for p in model.parameters()])


def judged(lanes: int, *, give: Callable[[hotswap.Race, int], None]) -> hotswap.Race:
    """A race on made-up losses, until it is over."""
    model = made(with_dropout_and_norm)
    race = hotswap.Race(model, [SGD(model.parameters(), lr=1e-3) for _ in range(lanes)], total_steps=1000)
    for number, batch in enumerate(minibatches(20 * lanes)):
        loss_of(model, batch).backward()
        give(race, number)
        race.zero_grad()
    return race


def test_the_mean_of_several_losses_since_the_last_step_counts() -> None:
    def give(race: hotswap.Race, number: int) -> None:
        high = 3.0 if number < 20 else 1.0
        for loss in (high - 1, torch.tensor([high + 1])):
            race.observe(loss)
        race.step(high)

    table = judged(2, give=give).standings()
    assert [one.loss for one in table] == [1.0, 3.0]
    assert [one.number for one in table] == [1, 0]


def test_of_several_losses_those_that_are_not_finite_do_not_count() -> None:
    """A scaler skips steps whose gradients are not finite; their losses wait for the next step."""

    def give(race: hotswap.Race, number: int) -> None:
        if number == 5:
            race.observe(torch.tensor(math.inf))
        race.observe(torch.tensor(2.0))
        race.step()

    table = judged(2, give=give).standings()
    assert [one.steps for one in table] == [20, 20]
    assert [one.loss for one in table] == [2.0, 2.0]


def test_some_steps_of_a_turn_may_have_no_loss() -> None:
    table = judged(2, give=lambda race, number: race.step(float(number) if number % 4 else None)).standings()
    assert {one.loss for one in table} == {sum(last) / 5 for last in ((14, 15, 17, 18, 19), (34, 35, 37, 38, 39))}


def test_a_loss_that_is_overwritten_later_counts_as_it_was() -> None:
    kept = torch.zeros(())

    def give(race: hotswap.Race, number: int) -> None:
        kept.fill_(1.0 if number < 20 else 2.0)
        race.step(kept)
        kept.fill_(-7.0)

    assert {one.loss for one in judged(2, give=give).standings()} == {1.0, 2.0}


def test_hooks_around_the_steps_of_a_race_are_run_once_a_step() -> None:
    model = made(with_dropout_and_norm)
    lanes: list[Optimizer] = two(model)
    race = hotswap.Race(model, lanes, total_steps=400)
    told: list[str] = []
    race.register_step_pre_hook(lambda *_: told.append("before the race's"))
    handle = race.register_step_post_hook(lambda *_: told.append("after the race's"))
    lanes[0].register_step_pre_hook(lambda *_: told.append("before the lane's"))
    batches = minibatches(2)
    step(model, race, batches[0])
    assert told == ["before the race's", "before the lane's", "after the race's"]
    handle.remove()
    step(model, race, batches[1])
    assert told[3:] == ["before the race's", "before the lane's"]


def test_a_hook_can_change_what_step_is_given() -> None:
    model = made(with_dropout_and_norm)
    race = hotswap.Race(model, two(model), total_steps=400)
    race.register_step_pre_hook(lambda _, args, settings: ((args[0] * 2,), settings))
    loss_of(model, minibatches(1)[0]).backward()
    assert race.step(torch.tensor(3.0)) == 6.0
