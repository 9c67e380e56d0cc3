"""Loops of others, which call `step()` without a closure."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim import HotSwapWarning
from tests.optim.racing.helpers import STEPS, contents, minibatches, network, race, same, train


def train_ahead(optimizer: hotswap.Race, model: torch.nn.Module, count: int = STEPS) -> None:
    """Each step ahead of the loop's own."""
    torch.manual_seed(7)
    for x, y in minibatches(count):
        loss = optimizer.step_ahead(lambda x=x, y=y: cross_entropy(model(x), y))
        assert optimizer.last_step is not None
        assert loss.item() == optimizer.last_step.loss_before
        assert optimizer.step() is None


def test_steps_ahead_are_steps() -> None:
    """Also the last one, after which a further step would warn that nothing moves any more."""
    model, other = network(), network()
    optimizer, twin = race(model), race(other)
    train_ahead(optimizer, model)
    train(twin, other, minibatches())
    assert same(contents(model), contents(other))
    assert optimizer.cost == twin.cost
    assert str(optimizer.standings()) == str(twin.standings())


def test_only_one_bare_step_does_nothing() -> None:
    model = network()
    optimizer = race(model)
    train_ahead(optimizer, model, 3)
    with pytest.raises(ClosureError, match="while lanes are racing"):
        optimizer.step()


def test_a_step_with_a_closure_is_a_step_of_its_own() -> None:
    model = network()
    optimizer = race(model)
    x, y = next(minibatches(1))
    optimizer.step_ahead(lambda: cross_entropy(model(x), y))
    optimizer.step(lambda: cross_entropy(model(x), y))
    assert optimizer.cost.plain == 2
    with pytest.raises(ClosureError, match="while lanes are racing"):
        optimizer.step()


def test_a_step_ahead_that_fails_is_none() -> None:
    model = network()
    optimizer = race(model)
    with pytest.raises(ClosureError, match="step_ahead"):
        optimizer.step_ahead(None)  # type: ignore[arg-type]
    with pytest.raises(ClosureError, match="no gradient"):
        optimizer.step_ahead(lambda: torch.ones((), requires_grad=True) * 2)
    with pytest.raises(ClosureError, match="while lanes are racing"):
        optimizer.step()


def test_a_race_that_is_loaded_awaits_nothing() -> None:
    model = network()
    optimizer = race(model)
    x, y = next(minibatches(1))
    optimizer.step_ahead(lambda: cross_entropy(model(x), y))
    twin = copy.deepcopy(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    for one in (optimizer, twin):
        with pytest.raises(ClosureError, match="while lanes are racing"):
            one.step()


def test_hooks_and_schedulers_count_one_step() -> None:
    model = network()
    optimizer = race(model, warmup=None, decay=None)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    called = []
    optimizer.register_step_post_hook(lambda *_: called.append(1))
    for x, y in minibatches(3):
        optimizer.step_ahead(lambda x=x, y=y: cross_entropy(model(x), y))
        optimizer.step()
        scheduler.step()
    assert len(called) == 3


@pytest.mark.parametrize(
    ("settings", "warned"),
    [({}, True), ({"warmup": None, "decay": None}, False), ({"total_steps": None}, False)],
)
def test_a_scheduler_beside_the_races_own_decay_is_warned_of_once(settings: dict[str, object], warned: bool) -> None:
    model = network()
    optimizer = race(model, **settings)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    batches = list(minibatches(6))

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.step(lambda: cross_entropy(model(x), y))

    for x, y in batches[:3]:  # by then it has changed twice, which a user may have done
        step(x, y)
        scheduler.step()
    expected = pytest.warns(HotSwapWarning, match="a decay of its own: rates are multiplied by both")
    with expected if warned else nullcontext():
        step(*batches[3])
    for x, y in batches[4:]:
        scheduler.step()
        step(x, y)


def test_a_scale_that_comes_from_a_checkpoint_is_no_change() -> None:
    model, again = network(), network()
    first, second = race(model), race(again)
    first.param_groups[0]["lr"] *= 0.5
    train(first, model, minibatches(2))
    second.load_state_dict(first.state_dict())
    batches = list(minibatches(3))
    train(second, again, batches[:1])
    for batch in batches[1:]:  # twice by hand, which is not warned of
        second.param_groups[0]["lr"] *= 0.5
        train(second, again, [batch])


def test_bare_steps_of_the_winner_are_recorded_and_averaged() -> None:
    """As steps with a closure are, except that nobody knows their loss."""
    model, other = network(), network()
    bare, optimizer = race(model, total_steps=None), race(other, total_steps=None)
    for one, net in ((bare, model), (optimizer, other)):
        train(one, net, minibatches(24))
        assert one.winner is not None
    torch.manual_seed(8)
    for x, y in minibatches(6, seed=2):
        bare.zero_grad()
        cross_entropy(model(x), y).backward()
        bare.step()
    torch.manual_seed(8)
    train(optimizer, other, minibatches(6, seed=2), seed=None)
    first, second = bare.last_step, optimizer.last_step
    assert first is not None
    assert second is not None
    assert math.isnan(first.loss_before)
    assert (first.step, first.factor, first.values) == (second.step, second.factor, second.values)
    now = contents(model)
    assert same(now, contents(other))
    with bare.average(), optimizer.average():
        assert same(contents(model), contents(other))
        assert not same(contents(model), now)


def test_a_grad_scaler_is_refused() -> None:
    model = network()
    optimizer, scaler = race(model), torch.amp.GradScaler("cpu")
    x, y = next(minibatches(1))
    scaler.scale(cross_entropy(model(x), y)).backward()
    before = contents(model)
    with pytest.raises(UnsupportedError, match="those of other lanes"):
        scaler.step(optimizer)
    assert same(before, contents(model))


def test_a_step_ahead_beyond_the_last_one_is_warned_of_once() -> None:
    model = network()
    optimizer = race(model)
    train_ahead(optimizer, model)
    x, y = next(minibatches(1))
    with pytest.warns(HotSwapWarning, match="nothing moves any more"):
        optimizer.step_ahead(lambda: cross_entropy(model(x), y))
    optimizer.step()  # a warning would be an error
