"""The base's own step: torch's wrapper around it is left out where nobody would miss it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import hotswap
from hotswap import HotSwap, HotSwapWarning, NoSearch
from hotswap.optim.moves import step_of_base
from tests.optim.helpers import batches, loss_of, model


def stepped(base: torch.optim.Optimizer) -> list[str]:
    """The names that the profiler sees in one step of the base."""
    for group in base.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step_of_base(base)
    return [event.key for event in profile.key_averages()]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adafactor])
def test_it_is_the_same_step_without_a_mark(kind: Any) -> None:
    first, second = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    base, plain = kind([first], lr=0.1), kind([second], lr=0.1)
    assert f"Optimizer.step#{kind.__name__}.step" not in stepped(base)
    second.grad = torch.ones_like(second)
    plain.step()
    assert torch.equal(first, second)


def test_a_hot_swapped_step_is_marked_once() -> None:
    net = model()
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [0.1]}, search=NoSearch())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step(loss_of(net, batches(1)[0]))
    marks = [event.key for event in profile.key_averages() if event.key.startswith("Optimizer.step")]
    assert marks == ["Optimizer.step#HotSwap.step"]


@pytest.mark.parametrize("register", [register_optimizer_step_pre_hook, register_optimizer_step_post_hook])
def test_hooks_on_all_optimizers_run(register: Any) -> None:
    parameter, seen = nn.Parameter(torch.ones(1)), []
    base = torch.optim.SGD([parameter])
    handle = register(lambda optimizer, *_: seen.append(optimizer))
    try:
        stepped(base)
    finally:
        handle.remove()
    assert seen == [base]


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_hooks_on_the_base_run_in_a_step_without_a_loss(kind: str) -> None:
    net, seen = model(), []
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [0.1]})
    optimizer.step(loss_of(net, batches(1)[0]))
    getattr(optimizer.base, f"register_step_{kind}_hook")(lambda *_: seen.append(1))
    loss_of(net, batches(1)[0])().backward()
    with pytest.warns(HotSwapWarning, match="without a closure"):
        optimizer.step()
    assert seen == [1]


def test_a_step_that_somebody_has_replaced_is_called() -> None:
    calls: list[str] = []
    base = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    base.step = lambda: calls.append("of the object")  # type: ignore[method-assign, assignment]
    step_of_base(base)

    class Own(torch.optim.SGD):
        pass

    other = Own([nn.Parameter(torch.ones(1))])

    @functools.wraps(Own.step)  # it has all attributes of torch's wrapper
    def patched(self: Any) -> None:
        calls.append("of the class")

    Own.step = patched  # type: ignore[method-assign, assignment]
    step_of_base(other)
    assert calls == ["of the object", "of the class"]


class Counting(torch.optim.Optimizer):
    """Shorter steps each time; it counts them in attributes of its own, and not in its state."""

    def __init__(self, params: Any, lr: float = 1.0) -> None:
        super().__init__(params, {"lr": lr})
        self.steps, self.seen, self.latest = 0, {"steps": 0}, [0]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        self.seen["steps"] += 1
        self.latest[0] += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad / (self.steps * self.seen["steps"] * self.latest[0]))


def test_a_base_that_counts_its_steps_in_attributes_counts_each_step_once() -> None:
    net = model()
    optimizer = HotSwap(Counting(net.parameters()), {"lr": [1.0, 0.3, 0.1]}, module=net)
    seen, latest = optimizer.base.seen, optimizer.base.latest  # somebody else reads these
    for number, batch in enumerate(batches(4), 1):
        optimizer.step(loss_of(net, batch))
        assert len(optimizer.last_step.trials) >= 1
        base: Any = optimizer.base
        assert (base.steps, base.seen["steps"], base.latest) == (number, number, [number])
        assert (seen, latest) == (base.seen, base.latest)


def test_lanes_that_count_their_steps_in_attributes_keep_their_own() -> None:
    net = model()
    race = hotswap.Race(net, [Counting(net.parameters(), lr) for lr in (0.1, 0.01)], total_steps=400, share=0.5)
    for batch in [*batches(10)] * 6:
        loss = loss_of(net, batch)()
        loss.backward()
        race.step(loss)
        race.zero_grad()
        for lane in race._contest.lanes:
            base: Any = lane.optimizer
            assert (base.steps, base.seen["steps"], base.latest) == (lane.steps, lane.steps, [lane.steps])
