"""A race goes on exactly where it was saved or copied."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.errors import CheckpointError
from tests.optim.racing.helpers import STEPS, contents, minibatches, network, race, same, train
from tests.optim.racing.test_lanes import BASES


def saved(thing: Any) -> Any:
    """As it comes back from a file that is not trusted."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("base", ["adamw", "sgd", "counting"])
@pytest.mark.parametrize("when", [0, 1, 7, 12, 18, 24, 33])
def test_it_goes_on_exactly(when: int, base: str) -> None:
    """Before the first step, in a round, between two, when the race is just over, and later."""
    straight, model = network(), network()
    optimizer = race(straight, BASES[base])
    expected = train(optimizer, straight, minibatches())
    first, batches = race(model, BASES[base]), list(minibatches())
    losses = train(first, model, batches[:when])
    file = saved({"model": model.state_dict(), "optimizer": first.state_dict(), "numbers": torch.get_rng_state()})
    again = network(seed=5)
    second = race(again, BASES[base])
    again.load_state_dict(file["model"])
    second.load_state_dict(file["optimizer"])
    torch.manual_seed(99)
    if when:
        torch.set_rng_state(file["numbers"])
    losses += train(second, again, batches[when:], seed=None if when else 7)
    assert losses == expected
    assert same(contents(straight), contents(again))
    assert str(second.standings()) == str(optimizer.standings())
    assert (second.winner, second.cost) == (optimizer.winner, optimizer.cost)


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_model_and_optimizer_are_loaded_in_any_order(order: str) -> None:
    model, batches = network(), list(minibatches())
    first = race(model)
    train(first, model, batches[:7])
    file = saved({"model": model.state_dict(), "optimizer": first.state_dict()})
    again = network(seed=5)
    second = race(again)
    if order == "model first":
        again.load_state_dict(file["model"])
    second.load_state_dict(file["optimizer"])
    if order == "optimizer first":
        again.load_state_dict(file["model"])
    assert train(first, model, batches[7:]) == train(second, again, batches[7:])


@pytest.mark.parametrize("when", [0, 7, 18, 33])
def test_a_deep_copy_goes_on_by_itself(when: int) -> None:
    model, batches = network(), list(minibatches())
    optimizer = race(model)
    train(optimizer, model, batches[:when])
    twin_model, twin = copy.deepcopy((model, optimizer))
    assert train(optimizer, model, batches[when:]) == train(twin, twin_model, batches[when:])
    assert same(contents(model), contents(twin_model))


def test_a_state_that_was_saved_does_not_change_with_the_race(tmp_path: Path) -> None:
    model, batches = network(), list(minibatches())
    optimizer = race(model)
    train(optimizer, model, batches[:7])
    torch.save(optimizer.state_dict(), tmp_path / "a.pt")
    before = contents(model)
    optimizer.state_dict()
    assert same(before, contents(model))  # saving moves nothing
    train(optimizer, model, batches[7:9])
    optimizer.load_state_dict(torch.load(tmp_path / "a.pt", weights_only=True))
    assert optimizer.cost.plain == 7


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"arms": {"lr": (0.2, 0.01, 0.001)}}, "values of its lanes are"),
        ({"arms": {"lr": (0.1, 0.01), "eps": (1e-8, 1e-6)}}, "hyperparameters are"),
        ({"total_steps": STEPS + 1}, "total_steps, warmup and decay are"),
        ({"rounds": ((10, 2), (24, 1))}, "rounds are"),
    ],
)
def test_the_state_of_another_race_is_refused(settings: dict[str, Any], sentence: str) -> None:
    model, other = network(), network()
    first, second = race(model), race(other, **settings)
    train(first, model, minibatches(7))
    train(second, other, minibatches(3))
    before = contents(other)
    with pytest.raises(CheckpointError, match=sentence):
        second.load_state_dict(first.state_dict())
    assert same(before, contents(other))
    assert second.cost.plain == 3


def test_the_state_of_another_optimizer_is_refused() -> None:
    model = network()
    swapped = hotswap.HotSwapSGD(model)
    for state, said in (
        (torch.optim.AdamW(model.parameters()).state_dict(), "was not saved by a Race"),
        (swapped.state_dict(), "is the state of a HotSwap; load it into one"),
        (model.state_dict(), "which is no optimizer's state: it has no 'param_groups'"),
        ({}, "a dict with nothing in it, which is no optimizer's state"),
        ("race.pt", "given a str, which is no optimizer's state"),
    ):
        with pytest.raises(CheckpointError, match=said):
            race(model).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"is the state of a Race; load it into a hotswap\.Race"):
        swapped.load_state_dict(race(model).state_dict())


def test_weights_in_bfloat16_go_on_exactly() -> None:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).bfloat16()

    def go(optimizer: hotswap.Race, model: nn.Module, batches: Any) -> list[Any]:
        found = []
        for x, y in batches:
            optimizer.step(lambda x=x, y=y: cross_entropy(model(x.bfloat16()).float(), y))
            found.append(optimizer.last_step.losses)  # type: ignore[union-attr]
        return found

    batches, model, again = list(minibatches()), made(), made()
    optimizer, second = race(model), race(again)
    go(optimizer, model, batches[:7])
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again.load_state_dict(file["model"])
    second.load_state_dict(file["optimizer"])
    assert go(optimizer, model, batches[7:]) == go(second, again, batches[7:])
