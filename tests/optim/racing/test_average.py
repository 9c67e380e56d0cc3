"""Averages of the weights, for runs whose end nobody knows."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.errors import SettingError, UnsupportedError
from tests.optim.racing.helpers import contents, minibatches, network, race, same, train
from tests.optim.racing.test_resume import saved


def averaged(count: int = 40) -> tuple[torch.nn.Sequential, hotswap.Race, list[torch.Tensor]]:
    """A race, and a weight of its winner after each step."""
    model = network()
    optimizer = race(model, total_steps=None)
    weights = []
    torch.manual_seed(7)
    for x, y in minibatches(count):
        over = optimizer.winner is not None
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        if over:
            weights.append(model[0].weight.detach().clone())
    return model, optimizer, weights


def test_the_average_is_what_its_formula_says() -> None:
    model, optimizer, weights = averaged(66)
    assert len(weights) == 42
    seen = weights[::10]  # the last of them after step 41
    stand_for = [seen[0], *(weight for weight in seen[1:] for _ in range(10))]
    expected = torch.zeros_like(weights[0])
    for step, weight in enumerate(stand_for, start=1):
        expected += 9 / (step + 8) * (weight - expected)
    before = contents(model)
    with optimizer.average():
        assert torch.allclose(model[0].weight, expected, atol=1e-6)
        assert not torch.equal(model[0].weight, before["0.weight"])
    assert same(before, contents(model))


def test_the_model_is_as_it_was_also_after_an_error() -> None:
    model, optimizer, _ = averaged()
    before = contents(model)
    with pytest.raises(KeyError), optimizer.average():
        raise KeyError
    assert same(before, contents(model))


@pytest.mark.parametrize("part", [slice(0, 1), slice(None)])
def test_the_model_is_as_it_was_where_parts_were_frozen_since(part: slice) -> None:
    model, optimizer, _ = averaged()
    model[part].requires_grad_(False)
    before = contents(model)
    with optimizer.average():
        assert not torch.equal(model[0].weight, before["0.weight"])
    assert same(before, contents(model))


def test_a_winner_that_goes_back_takes_its_average_along() -> None:
    model, optimizer, _ = averaged(44)  # the weights of the next step are taken in, whose loss is fine
    x, y = next(minibatches(1))
    optimizer.step(lambda: cross_entropy(model(x), y) + (0 * model[6].weight.sum()).sqrt())  # its gradient is NaN
    assert not model[6].weight.isfinite().all()
    with pytest.warns(hotswap.HotSwapWarning, match="went back to its snapshot"):
        train(optimizer, model, minibatches(20))
    with optimizer.average():
        assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_statistics_of_batch_norm_belong_to_the_average() -> None:
    model, optimizer, _ = averaged()
    before, batches = contents(model), [x for x, _ in minibatches(5, seed=3)]
    with optimizer.average():
        optimizer.calibrate(batches)
        inputs = torch.cat([model[0](x) for x in batches])
        assert torch.allclose(model[1].running_mean, inputs.mean(0), atol=1e-5)
    assert same(before, contents(model))


def test_before_the_race_is_over_it_is_the_leader() -> None:
    model, optimizer, _ = averaged(10)
    before = contents(model)
    with optimizer.average():
        assert same(before, contents(model))


def test_it_is_saved_with_the_race() -> None:
    model, optimizer, _ = averaged(30)
    again = network(seed=5)
    second = race(again, total_steps=None)
    again.load_state_dict(saved(model.state_dict()))
    second.load_state_dict(saved(optimizer.state_dict()))
    batches = list(minibatches(5, seed=4))
    train(optimizer, model, batches)
    train(second, again, batches)
    with optimizer.average(), second.average():
        assert same(contents(model), contents(again))


@pytest.mark.parametrize("steps", [10, 40])  # before the race is over, and after
def test_a_step_inside_would_be_lost_and_is_refused(steps: int) -> None:
    model, optimizer, _ = averaged(steps)
    before, (x, y) = contents(model), next(minibatches(1))
    with optimizer.average():
        with optimizer.average():
            pass
        with pytest.raises(UnsupportedError, match="the step would be lost"):
            optimizer.step(lambda: cross_entropy(model(x), y))
    assert same(before, contents(model))
    assert optimizer.cost.plain == steps
    optimizer.step(lambda: cross_entropy(model(x), y))
    assert not same(before, contents(model))


def test_where_there_is_none() -> None:
    model = network()
    with pytest.raises(UnsupportedError, match="rates fall in the end"), race(model).average():
        pass
    with pytest.raises(SettingError, match="give it to Race"):
        race(model, module=None).calibrate([])
