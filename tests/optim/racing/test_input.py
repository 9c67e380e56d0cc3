"""Bad input gets one sentence, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer

import hotswap
from hotswap.errors import ClosureError, HotSwapError, SettingError, UnsupportedError
from tests.optim.racing.helpers import STEPS, contents, minibatches, network, race, same, train


def test_the_default_lanes_are_around_the_bases_own_rate() -> None:
    model = network()
    assert hotswap.Race(AdamW(model.parameters())).arms.axes == (hotswap.log_grid(3e-2, 1e-4, 6),)
    wide = hotswap.Race(torch.optim.SGD(model.parameters(), lr=0.1)).arms.axes[0]
    assert (wide[0], wide[-1], len(wide)) == (3.0, pytest.approx(0.01), 6)


def test_the_leader_before_the_first_round_is_nearest_to_the_bases_own_rate() -> None:
    optimizer = hotswap.Race(AdamW(network().parameters()))
    assert optimizer.standings().leader == 3
    assert "<- leads" in str(optimizer.standings()).splitlines()[4]
    assert optimizer.winner is None
    assert optimizer.last_step is None
    assert optimizer.cost == (0, 0)


def stepped() -> Optimizer:
    model = nn.Linear(2, 2)
    base = AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    base.step()
    return base


@pytest.mark.parametrize(
    ("make", "kind", "sentence"),
    [
        (lambda base: hotswap.Race(network()), SettingError, "not a torch.optim.Optimizer"),
        (lambda base: hotswap.Race(base, [0.1, 0.2]), SettingError, "name what lanes differ in"),
        (lambda base: hotswap.Race(base, {"lr": [0.1]}), SettingError, "at least two lanes"),
        (lambda base: hotswap.Race(base, {"speed": [0.1, 1.0]}), SettingError, "speed"),
        (lambda base: hotswap.Race(base, {"lr": [0.1, -1.0]}), SettingError, "must be positive"),
        (lambda base: hotswap.Race(base, total_steps=10), SettingError, "need at least 60 steps"),
        (lambda base: hotswap.Race(base, total_steps=1000, rounds=((0.1, 7),)), SettingError, "only 6 lanes"),
        (lambda base: hotswap.Race(base, total_steps=1000, decay=2), SettingError, "decay must be a share"),
        (lambda base: hotswap.Race(base, total_steps=1000, module=3), SettingError, "must be a torch.nn.Module"),
        (lambda base: hotswap.Race(stepped()), SettingError, "has state already"),
        (
            lambda base: hotswap.Race(torch.optim.Adagrad(network().parameters())),
            UnsupportedError,
            "Race cannot be around Adagrad, which makes its state when it is constructed",
        ),
        (lambda base: hotswap.Race(hotswap.HotSwap(base)), UnsupportedError, "around a HotSwap"),
        (lambda base: hotswap.Race(hotswap.Race(base)), UnsupportedError, "around a Race"),
        (lambda base: hotswap.Race(torch.optim.LBFGS([nn.Parameter(torch.ones(1))])), UnsupportedError, "LBFGS"),
    ],
)
def test_bad_settings(make: Callable[[Optimizer], object], kind: type[HotSwapError], sentence: str) -> None:
    base = AdamW(network().parameters())
    groups = [dict(group) for group in base.param_groups]
    with pytest.raises(kind, match=sentence):
        make(base)
    assert [dict(group) for group in base.param_groups] == groups
    assert not base.state


def test_an_unknown_hyperparameter_lists_those_that_there_are() -> None:
    with pytest.raises(SettingError, match="weight_decay"):
        hotswap.Race(AdamW(network().parameters()), {"speed": [0.1, 1.0]})


def test_a_base_that_looks_for_larger_losses_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Race looks for a smaller loss"):
        hotswap.Race(AdamW(network().parameters(), maximize=True))


def test_a_scaler_of_gradients_is_refused() -> None:
    model = network()
    optimizer, scaler = race(model), torch.amp.GradScaler("cpu", enabled=True)
    x, y = next(minibatches(1))
    scaler.scale(cross_entropy(model(x), y)).backward()
    with pytest.raises(UnsupportedError, match="GradScaler"):
        scaler.step(optimizer)


def test_groups_that_are_added_on_the_way() -> None:
    model, extra = network(), nn.Linear(3, 3)
    optimizer = race(model)
    train(optimizer, model, minibatches(5))
    optimizer.add_param_group({"params": extra.parameters(), "lr": 1e-3})
    before = extra.weight.clone()
    for x, y in minibatches(STEPS - 5):
        optimizer.step(lambda x=x, y=y: cross_entropy(extra(model(x)), y))
    assert optimizer.winner is not None
    assert not torch.equal(before, extra.weight)


def test_a_step_needs_a_closure_while_lanes_are_racing() -> None:
    model = network()
    optimizer = race(model)
    train(optimizer, model, minibatches(3))
    before = contents(model)
    with pytest.raises(ClosureError, match="while lanes are racing"):
        optimizer.step()
    assert same(before, contents(model))
    train(optimizer, model, minibatches(STEPS - 5))
    x, y = next(minibatches(1))
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    before = contents(model)
    assert optimizer.step() is None  # the race is over
    assert not torch.equal(before["0.weight"], model[0].weight)
    assert optimizer.cost.plain == STEPS - 1


def test_lazy_modules_need_a_call_before() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))
    optimizer = hotswap.Race(AdamW(model.parameters()))
    x, y = next(minibatches(1))
    with pytest.raises(UnsupportedError, match="call the model once"):
        optimizer.step(lambda: cross_entropy(model(x), y))
    model(x)
    optimizer = hotswap.Race(AdamW(model.parameters()))
    optimizer.step(lambda: cross_entropy(model(x), y))


def test_a_closure_that_loads_its_own_minibatch_is_warned_of_once() -> None:
    model = network()
    optimizer, batches = race(model), minibatches()

    def closure() -> torch.Tensor:
        x, y = next(batches)
        return cross_entropy(model(x), y)

    with pytest.warns(hotswap.HotSwapWarning) as said:
        assert [optimizer.step(closure) is None for _ in range(3)] == [False] * 3
    (warning,) = said
    assert "A race compares losses, so it needs a closure that computes the same one every time" in str(warning.message)
    assert warning.filename == __file__


def test_epochs_in_place_of_steps_are_refused() -> None:
    said = (
        r"these rounds need at least 60 steps\. total_steps counts minibatches, epochs \* len\(loader\), and not epochs"
    )
    with pytest.raises(SettingError, match=rf"Race\(total_steps=15\): {said}"):
        hotswap.Race(AdamW(network().parameters()), total_steps=15)


def test_a_step_inside_of_its_own_closure_changes_nothing() -> None:
    model = network()
    optimizer = race(model)
    train(optimizer, model, minibatches(3))
    before = contents(model)
    x, y = next(minibatches(1))

    def closure() -> torch.Tensor:
        optimizer.step(lambda: cross_entropy(model(x), y))
        return cross_entropy(model(x), y)

    with pytest.raises(ClosureError, match="from inside of its own closure"):
        optimizer.step(closure)
    assert same(before, contents(model))
