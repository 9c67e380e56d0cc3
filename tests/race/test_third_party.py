"""Optimizers of other packages race: the winner is, bit for bit, its optimizer alone, and resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from prodigyopt import Prodigy
from pytorch_optimizer import SOAP, Lion, Lookahead
from schedulefree import AdamWScheduleFree
from torch import nn
from torch.optim import SGD, Adafactor, AdamW, Optimizer

import hotswap
from tests.race.helpers import equal, loss_of, made, minibatches, perceptron, step, through_a_file

KINDS: dict[str, Callable[[nn.Module], Any]] = {
    "SOAP": lambda model: SOAP(model.parameters(), lr=3e-3, precondition_frequency=3),
    "Lion": lambda model: Lion(model.parameters(), lr=1e-3),
    "Lookahead": lambda model: Lookahead(AdamW(model.parameters(), lr=0.01), k=3),
    "schedulefree": lambda model: AdamWScheduleFree(model.parameters(), lr=0.01, warmup_steps=5),
    "Prodigy": lambda model: Prodigy(model.parameters(), lr=1.0, d_coef=2.0),
    "Adafactor": lambda model: Adafactor(model.parameters(), lr=0.01),
    "fused AdamW": lambda model: AdamW(model.parameters(), lr=0.01, fused=True, amsgrad=True),
}


def race_of(kind: str, model: nn.Module) -> hotswap.Race:
    """Beside a lane that cannot win."""
    lanes: list[Optimizer] = [KINDS[kind](model), SGD(model.parameters(), lr=1e-9)]
    return hotswap.Race(model, lanes, total_steps=1000, schedule=None)


def values(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_it_races_exactly_and_resumes_in_and_after_the_race(kind: str) -> None:
    model, batches = made(perceptron), minibatches(230)
    race = race_of(kind, model)
    took, saved = [], {}
    for number, batch in enumerate(batches):
        if number in (10, 40, 110, 210):
            saved[number] = (through_a_file(model.state_dict()), through_a_file(race.state_dict()))
        took.append(race.current)
        step(model, race, batch)
    assert race.winner is race._contest.lanes[0]
    assert took.index(race._contest.lanes[1]) < 110

    alone = made(perceptron)
    optimizer = KINDS[kind](alone)
    if hasattr(optimizer, "train"):
        optimizer.train()
    for lane, batch in zip(took, batches, strict=True):
        if lane is race.winner:
            loss_of(alone, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert equal(values(model), values(alone))

    for number, (weights, state) in saved.items():
        again = made(perceptron, seed=3)
        other = race_of(kind, again)
        again.load_state_dict(weights)
        other.load_state_dict(state)
        for batch in batches[number:]:
            step(again, other, batch)
        assert equal(values(again), values(model)), number
