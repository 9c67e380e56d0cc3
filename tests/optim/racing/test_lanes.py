"""A lane is the run that would have been trained alone, bit for bit."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW, Optimizer

import hotswap
from hotswap.races import Schedule
from tests.optim.racing.helpers import RATES, STEPS, alone, contents, minibatches, network, race, same, train

SCHEDULE = Schedule(STEPS)


class Counting(Optimizer):
    """Writes into its parameter groups, as Prodigy and Schedule-Free do, and steps by what it has written."""

    def __init__(self, params: Any, lr: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "seen": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            length = sum(float(p.grad.norm()) for p in group["params"] if p.grad is not None)
            group["seen"] = group["seen"] + length
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] / (1 + group["seen"]))


BASES: dict[str, Callable[..., Optimizer]] = {
    "adamw": AdamW,
    "sgd": partial(SGD, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": partial(Adam, amsgrad=True, foreach=False),
    "counting": Counting,
}


@pytest.mark.parametrize("make", BASES.values(), ids=BASES)
def test_each_lane_is_a_run_of_its_own(make: Callable[..., Optimizer]) -> None:
    model = network()
    optimizer = race(model, make)
    losses = train(optimizer, model, minibatches())
    assert optimizer.winner is not None
    for number, rate in enumerate(RATES):
        other = network()
        expected = alone(other, make(list(other.parameters())), rate, SCHEDULE, minibatches())
        seen = [step[number] for step in losses if number in step]
        assert seen == expected[: len(seen)]
        if optimizer.winner["lr"] == rate:
            assert len(seen) == STEPS
            assert same(contents(model), contents(other))


def test_the_best_stay() -> None:
    model = network()
    optimizer = race(model)
    losses = train(optimizer, model, minibatches())
    assert [len(step) for step in losses] == [3] * 12 + [2] * 12 + [1] * 16
    judged = {n: sum(step[n] for step in losses[8:12]) / 4 for n in range(3)}
    standings = optimizer.standings()
    worst = max(judged, key=judged.__getitem__)
    assert standings[worst].reason == "out: 3rd of 3"
    assert (standings[worst].step, standings[worst].racing) == (12, False)
    assert standings[worst].loss == pytest.approx(judged[worst])
    judged = {n: sum(step[n] for step in losses[20:24]) / 4 for n in losses[20]}
    best = min(judged, key=judged.__getitem__)
    assert standings[best].reason == "won"
    assert optimizer.winner == {"lr": RATES[best]}
    assert optimizer.cost == (12 * 3 + 12 * 2 + 16, STEPS)


def test_between_steps_the_model_is_the_leader() -> None:
    model = network().eval()  # so that the loss is a function of the weights
    optimizer = race(model)
    for x, y in minibatches():
        before = cross_entropy(model(x), y)
        loss = optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        assert loss is not None
        assert optimizer.last_step is not None
        assert loss.item() == before.item() == optimizer.last_step.loss_before
        assert not loss.requires_grad


def test_what_is_done_to_the_model_between_steps_is_done_to_the_leader() -> None:
    model, other = network(), network()
    optimizer, twin = race(model), race(other)
    for step, (x, y) in enumerate(minibatches(5)):
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        if step == 3:
            with torch.no_grad():
                model[0].weight.zero_()
            lanes = {lane.number: lane.weights for lane in optimizer._course.lanes}
    for x, y in minibatches(5):
        twin.step(lambda x=x, y=y: cross_entropy(other(x), y))
    assert optimizer.last_step is not None
    leader = optimizer.last_step.leader
    assert (model[0].weight.abs() < 0.1).all()
    assert all((weights[model[0].weight] != 0).any() for number, weights in lanes.items() if number != leader)


def test_groups_keep_their_ratio() -> None:
    """A group's rate is the lane's times its share of the first group's."""

    def groups(model: nn.Sequential) -> list[dict[str, Any]]:
        return [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[6].parameters(), "lr": 1e-4}]

    model, other = network(), network()
    optimizer = race(model, lambda _: AdamW(groups(model)))
    train(optimizer, model, minibatches())
    assert optimizer.winner is not None
    base = AdamW(groups(other))
    torch.manual_seed(7)
    for step, (x, y) in enumerate(minibatches()):
        for group, share in zip(base.param_groups, (1, 0.1), strict=True):
            group["lr"] = optimizer.winner["lr"] * SCHEDULE.factor(step) * share  # type: ignore[operator]
        base.zero_grad()
        cross_entropy(other(x), y).backward()
        base.step()
    assert all(
        torch.allclose(p, q, rtol=1e-6, atol=1e-8) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_a_scheduler_of_ones_own_scales_every_lane() -> None:
    model, other = network(), network()
    optimizer = race(model, warmup=None, decay=None)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(7)
    for x, y in minibatches():
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        assert optimizer.last_step is not None
        rates = {number: values["lr"] for number, values in optimizer.last_step.values.items()}
        assert all(rates[n] == pytest.approx(RATES[n] * scheduler.get_last_lr()[0] / 1e-3) for n in rates)
        scheduler.step()
    assert optimizer.winner is not None
    base = AdamW(other.parameters())
    torch.manual_seed(7)
    for step, (x, y) in enumerate(minibatches()):
        base.param_groups[0]["lr"] = optimizer.winner["lr"] / (1 + step)  # type: ignore[operator]
        base.zero_grad()
        cross_entropy(other(x), y).backward()
        base.step()
    assert all(
        torch.allclose(p, q, rtol=1e-5, atol=1e-7) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_other_hyperparameters_race_too() -> None:
    model = network()
    arms = {"lr": [1e-2, 1e-3], "weight_decay": [0.0, 0.1], "betas": [(0.9, 0.99)]}
    optimizer = race(model, arms=arms, rounds=((10, 2), (20, 1)))
    losses = train(optimizer, model, minibatches())
    assert len(losses[0]) == 4
    assert set(optimizer.winner or {}) == {"lr", "weight_decay", "betas"}
    base = optimizer.base.param_groups[0]
    assert (base["lr"], base["weight_decay"], base["betas"]) == (1e-3, 1e-2, (0.9, 0.999))  # the user's, as they were


def test_closures_that_run_their_own_backward_and_clip() -> None:
    model, other = network(), network()
    optimizer, plain = race(model), race(other, clip_norm=0.5)

    def closure(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        return loss

    torch.manual_seed(7)
    for x, y in minibatches():
        optimizer.step(lambda x=x, y=y: closure(x, y))
    train(plain, other, minibatches())
    assert same(contents(model), contents(other))


def test_several_minibatches_in_one_step() -> None:
    model, other = network().eval(), network().eval()
    optimizer, whole = race(model), race(other)
    for x, y in minibatches():
        halves = [(x[:8], y[:8]), (x[8:], y[8:])]
        optimizer.step(hotswap.accumulate(lambda batch: cross_entropy(model(batch[0]), batch[1]), halves))
        whole.step(lambda x=x, y=y: cross_entropy(other(x), y))
    assert all(torch.allclose(p, q, atol=1e-5) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def test_weights_in_bfloat16_have_masters_in_each_lane() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).bfloat16()
    optimizer = race(model, arms={"lr": (1e-1, 1e-5)}, rounds=((STEPS - 1, 1),))
    before = [p.clone() for p in model.parameters()]
    for x, y in minibatches(20):
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x.bfloat16()).float(), y))
    slow = optimizer._course.lane(1)
    masters = slow.masters.read(list(model.parameters()))
    moved = [not torch.equal(masters[place], p.float()) for place, p in enumerate(before)]
    assert any(moved)  # steps of 1e-5 vanish in bfloat16, and are kept in float32


def test_what_the_closure_returns_beside_the_loss_is_the_leaders() -> None:
    model = network()
    optimizer = race(model)
    for x, y in minibatches(3):
        seen: list[torch.Tensor] = []

        def closure(x: torch.Tensor = x, y: torch.Tensor = y, seen: list[torch.Tensor] = seen) -> Any:
            seen.append(model(x))
            return cross_entropy(seen[-1], y), seen[-1]

        optimizer.step(closure)
        assert optimizer.last_step is not None
        assert torch.equal(optimizer.last_step.aux, seen[-1])  # type: ignore[arg-type]
        assert not optimizer.last_step.aux.requires_grad  # type: ignore[attr-defined]


def test_the_loop_that_is_written_for_you() -> None:
    model = network()
    optimizer = race(model)
    batches = list(minibatches(8))
    steps = hotswap.train_until(
        hotswap.convergence.steps(STEPS), optimizer, lambda batch: cross_entropy(model(batch[0]), batch[1]), batches
    )
    losses = [progress.losses[-1] for progress in steps]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0]
    assert optimizer.winner is not None


def test_what_is_counted_is_counted_once() -> None:
    """Of the leader, which is the lane that is evaluated when `in_trial` is false."""
    model = network()
    optimizer = race(model)
    counted = []

    def closure(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(model(x), y)
        if not hotswap.in_trial():
            counted.append(loss.item())
        return loss

    for step, (x, y) in enumerate(minibatches(), start=1):
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert len(counted) == step
        assert counted[-1] == optimizer.last_step.loss_before  # type: ignore[union-attr]


def test_lanes_that_are_out_leave_nothing() -> None:
    model = network()
    optimizer = race(model)
    batches = iter(minibatches())
    train(optimizer, model, [next(batches) for _ in range(5)])
    held = [weakref.ref(lane.weights[model[0].weight]) for lane in optimizer._course.lanes]
    assert all(weight() is not None for weight in held)
    train(optimizer, model, [next(batches) for _ in range(25)])
    gc.collect()
    assert all(weight() is None for weight in held)
    assert not optimizer._course.lanes[0].weights


def test_offloaded_lanes_are_the_same() -> None:
    model, other = network(), network()
    one, two = race(model), race(other, offload=True)
    assert train(one, model, minibatches()) == train(two, other, minibatches())
    assert same(contents(model), contents(other))


def test_a_closure_that_fails_leaves_the_leader_as_it_was() -> None:
    model = network()
    optimizer = race(model)
    batches = iter(minibatches())
    train(optimizer, model, [next(batches) for _ in range(3)])
    before, calls = contents(model), 0
    moments = copy.deepcopy(optimizer.state[model[0].weight])

    def closure() -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("no such minibatch")
        x, y = next(minibatches(1))
        return cross_entropy(model(x), y)

    with pytest.raises(OSError, match="no such minibatch"):
        optimizer.step(closure)
    assert same(before, contents(model))
    assert all(torch.equal(moments[name], value) for name, value in optimizer.state[model[0].weight].items())
    assert optimizer.cost.plain == 3
    train(optimizer, model, batches)
    assert optimizer.winner is not None
