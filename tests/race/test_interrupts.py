"""Ctrl-C at every line of a step and of a swap: the model stays a whole lane, and the next step works."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW

import hotswap
from tests.race.helpers import copied, equal, loss_of, made, minibatches, step

HOME = str(Path(hotswap.race.__file__).parent)
BATCHES = minibatches(140)


class Interrupt:
    """Raise KeyboardInterrupt at the n-th line that is run in a room; without a number, note the lines."""

    def __init__(self, number: int | None = None, home: str = HOME) -> None:
        self.number, self.home, self.lines = number, home, list[tuple[str, int]]()

    def __enter__(self) -> Interrupt:
        sys.settrace(self._calls)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _calls(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self._lines if frame.f_code.co_filename.startswith(self.home) else None

    def _lines(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.lines) == self.number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._lines


def numbers_of(call: Callable[[], Any], home: str = HOME) -> list[int]:
    """The first and the last time at which a call runs each of its lines."""
    with Interrupt(home=home) as noted:
        call()
    first = {line: number for number, line in reversed(list(enumerate(noted.lines, 1)))}
    last = {line: number for number, line in enumerate(noted.lines, 1)}
    return sorted({*first.values(), *last.values()})


def whole(model: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in (*model.parameters(), *model.buffers())]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))


def raced(steps: int, **settings: Any) -> tuple[nn.Module, hotswap.Race]:
    model = made(small)
    lanes = [AdamW(model.parameters(), lr=0.01), SGD(model.parameters(), lr=0.1, momentum=0.9)]
    race = hotswap.Race(model, lanes, total_steps=500, **settings)
    for batch in BATCHES[:steps]:
        step(model, race, batch)
    return model, race


MOMENTS = {
    "the first step": (0, {}),
    "within a turn": (3, {}),
    "the end of a turn": (19, {}),
    "the end of the race": (79, {}),
    "a snapshot of the winner": (129, {}),
    "the end of the race, with a judge": (79, {"judge": lambda model: float(next(model.parameters()).norm())}),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_every_line_of_a_step(moment: str) -> None:
    """The model is the lane that has it afterwards, or the lane that had it before, with its step or without it."""
    steps, settings = MOMENTS[moment]
    model, race = raced(steps, **settings)
    batch, after = BATCHES[steps], minibatches(1, seed=9)[0]
    torch.manual_seed(1)
    loss = loss_of(model, batch)
    loss.backward()
    value = loss.item()
    before = whole(model)
    again, other = copied(model, race)
    stepped: list[list[Tensor]] = []
    for lane in other._contest.lanes:
        lane.optimizer.register_step_post_hook(lambda *_: stepped.append(whole(again)))
    other.step(value)
    allowed = [before, *stepped, whole(again)]
    again, other = copied(model, race)
    for number in numbers_of(partial(other.step, value)):
        again, other = copied(model, race)
        with pytest.raises(KeyboardInterrupt), Interrupt(number):
            other.step(value)
        parked = other.current.parked
        mine = [] if parked is None or parked["model"] is None else [parked["model"]["weights"]]
        now = whole(again)
        assert any(equal(now, one) for one in allowed) or any(equal(now[: len(w)], w) for w in mine), number
        other.zero_grad()
        step(again, other, after)
        assert all(value.isfinite().all() for value in whole(again))
        assert sum(one.steps for one in other.standings()) <= steps + 2


@pytest.mark.parametrize("method", ["eval", "train"])
def test_ctrl_c_at_every_line_of_eval_and_train_loses_no_weights(method: str) -> None:
    model, race = raced(30)
    before = whole(model)
    if method == "train":
        race.eval()
    again, other = copied(model, race)
    for number in numbers_of(getattr(other, method)):
        again, other = copied(model, race)
        with pytest.raises(KeyboardInterrupt), Interrupt(number):
            getattr(other, method)()
        other.train()
        assert equal(whole(again), before), number


@pytest.fixture
def interruptible() -> Iterator[None]:
    """The handler of a terminal's Ctrl-C, which a program in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_real_ctrl_c_waits_until_the_step_is_whole() -> None:
    """The interrupt comes while the optimizer of the lane takes its step."""
    model, race = raced(19)
    again, other = copied(model, race)
    lane = race.current.optimizer
    lane.register_step_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT))
    torch.manual_seed(1)
    with pytest.raises(KeyboardInterrupt):
        step(model, race, BATCHES[19])
    torch.manual_seed(1)
    step(again, other, BATCHES[19])
    assert equal(whole(model), whole(again))
    assert str(race.standings()) == str(other.standings())
    assert race.current is not race._contest.lanes[0]


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_interrupts_at_once() -> None:
    model, race = raced(10)

    def twice(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("it went on")

    race.current.optimizer.register_step_pre_hook(twice)
    before = whole(model)
    with pytest.raises(KeyboardInterrupt):
        step(model, race, BATCHES[10])
    assert equal([p.detach() for p in model.parameters()], before[: len(list(model.parameters()))])
