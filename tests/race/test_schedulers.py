"""Schedulers of the user's own: around a race they scale all lanes alike, and inside each lane has its own."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim import lr_scheduler as torchs
from torch.optim.swa_utils import SWALR

import hotswap
from hotswap import UnsupportedError
from tests.race.helpers import loss_of, made, minibatches, perceptron, step

STEPS = 120
Make = Callable[[Any], Any]

SCALES: dict[str, Make] = {
    "Lambda": lambda o: torchs.LambdaLR(o, lambda n: min(1, (n + 1) / 9) * 0.99**n),
    "Multiplicative": lambda o: torchs.MultiplicativeLR(o, lambda n: 0.99),
    "Step": lambda o: torchs.StepLR(o, 25, 0.5),
    "MultiStep": lambda o: torchs.MultiStepLR(o, [20, 70], 0.3),
    "Constant": lambda o: torchs.ConstantLR(o, 0.2, 30),
    "Linear": lambda o: torchs.LinearLR(o, 0.1, 0.5, 40),
    "Exponential": lambda o: torchs.ExponentialLR(o, 0.98),
    "Polynomial": lambda o: torchs.PolynomialLR(o, STEPS + 1, 2.0),
    "Cosine": lambda o: torchs.CosineAnnealingLR(o, STEPS + 1),
    "WarmRestarts": lambda o: torchs.CosineAnnealingWarmRestarts(o, 30),
    "Sequential": lambda o: torchs.SequentialLR(
        o, [torchs.LinearLR(o, 0.1, 1, 10), torchs.CosineAnnealingLR(o, STEPS)], [10]
    ),
    "Chained": lambda o: torchs.ChainedScheduler([torchs.ConstantLR(o, 0.1, 10), torchs.ExponentialLR(o, 0.99)]),
    "Plateau": lambda o: torchs.ReduceLROnPlateau(o, patience=6, factor=0.7),
}


def lanes(model: nn.Module) -> list[Optimizer]:
    """The first one, whose rates a scheduler sees, does not win."""
    return [SGD(model.parameters(), lr=1e-4), AdamW(model.parameters(), lr=0.02), SGD(model.parameters(), lr=0.003)]


def stepped(scheduler: Any, number: int) -> None:
    """A step of a scheduler; the loss that a plateau looks at rises and falls."""
    with warnings.catch_warnings():  # alone, the winner's scheduler is stepped before its optimizer is
        warnings.simplefilter("ignore", UserWarning)
        loss = (math.sin(number / 9),) if isinstance(scheduler, torchs.ReduceLROnPlateau) else ()
        scheduler.step(*loss)


@pytest.mark.parametrize("name", SCALES)
def test_a_scheduler_around_a_race_does_to_the_winner_what_it_does_to_its_optimizer_alone(name: str) -> None:
    model = made(perceptron).double()
    alone = copy.deepcopy(model)
    race = hotswap.Race(model, lanes(model), total_steps=STEPS, share=0.5, schedule=None)
    scheduler, seen, rates = SCALES[name](race), [], []
    for number, batch in enumerate(minibatches(STEPS)):
        seen.append(race.current)
        step(model, race, batch)
        rates.append(race.current.optimizer.param_groups[0]["lr"])
        stepped(scheduler, number)
    winner = race.winner
    assert winner is race._contest.lanes[1]
    optimizer = lanes(alone)[1]
    scheduler = SCALES[name](optimizer)
    true = []
    for number, batch in enumerate(minibatches(STEPS)):
        if seen[number] is winner:
            loss_of(alone, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        true.append(optimizer.param_groups[0]["lr"])
        stepped(scheduler, number)
    assert len(set(true)) > 1
    assert rates[-40:] == pytest.approx(true[-40:], rel=1e-12)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_groups_show_the_true_rate_or_beside_a_scheduler_the_true_rate_and_the_scheduler_s() -> None:
    for around in (False, True):
        model = made(perceptron)
        race = hotswap.Race(model, lanes(model), total_steps=STEPS, share=0.5)
        scheduler = torchs.CosineAnnealingLR(race, STEPS) if around else None
        true = set()
        for batch in minibatches(STEPS):
            here = race.current
            step(model, race, batch)
            taken = here.optimizer.param_groups[0]["lr"]
            if race.current is here:
                assert race.param_groups[0]["lane_lr" if around else "lr"] == taken
            true.add(taken)
            if scheduler is not None:
                assert race.param_groups[0]["lr"] == scheduler.get_last_lr()[0]
                scheduler.step()
        assert len(true) > STEPS / 2
        assert ("lane_lr" in race.param_groups[0]) == around


ABSOLUTE: dict[str, tuple[Make, str]] = {
    "OneCycle": (lambda o: torchs.OneCycleLR(o, 0.1, STEPS, cycle_momentum=False), "OneCycleLR around the race sets"),
    "Cyclic": (lambda o: torchs.CyclicLR(o, 1e-4, 0.1, cycle_momentum=False), "CyclicLR around the race sets"),
    "SWA": (lambda o: SWALR(o, 0.05), "SWALR around the race sets"),
    "Cosine": (lambda o: torchs.CosineAnnealingLR(o, 9, 1e-5), r"CosineAnnealingLR\(eta_min=1e-05\).*write eta_min=0"),
    "WarmRestarts": (
        lambda o: torchs.CosineAnnealingWarmRestarts(o, 9, eta_min=1e-5),
        r"CosineAnnealingWarmRestarts\(eta_min=1e-05\)",
    ),
    "Sequential": (
        lambda o: torchs.SequentialLR(o, [torchs.LinearLR(o), torchs.CosineAnnealingLR(o, 9, 1e-5)], [5]),
        r"CosineAnnealingLR\(eta_min=1e-05\)",
    ),
    "Plateau": (
        lambda o: torchs.ReduceLROnPlateau(o, patience=0, min_lr=1e-6),
        r"ReduceLROnPlateau\(min_lr=1e-06\).*write min_lr=0",
    ),
}


@pytest.mark.parametrize("name", ABSOLUTE)
def test_schedulers_that_set_rates_of_their_own_are_refused_and_change_nothing(name: str) -> None:
    make, said = ABSOLUTE[name]
    model = made(perceptron)
    race = hotswap.Race(model, lanes(model), total_steps=STEPS, share=0.5)
    scheduler = make(race)
    if name == "Plateau":  # which writes nothing until then
        step(model, race, minibatches(1)[0])
        for loss in (1.0, 2.0, 3.0):
            scheduler.step(loss)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(UnsupportedError, match=said) as caught:
        step(model, race, minibatches(1)[0])
    assert "Race(schedule=function), which makes a scheduler for each lane" in str(caught.value)
    assert all(map(torch.equal, before, model.parameters()))


def test_momentum_that_a_scheduler_changes_is_refused() -> None:
    class Cycling(torchs.LambdaLR):
        def step(self, epoch: int | None = None) -> None:
            super().step(epoch)
            self.optimizer.param_groups[0]["momentum"] = 0.8

    model = made(perceptron)
    race = hotswap.Race(model, [SGD(model.parameters(), lr=lr, momentum=0.9) for lr in (0.1, 0.01)], total_steps=STEPS)
    Cycling(race, lambda _: 1.0)
    with pytest.raises(UnsupportedError, match=r"has changed momentum to 0\.8"):
        step(model, race, minibatches(1)[0])


def test_a_function_makes_a_scheduler_for_each_lane_also_one_that_sets_rates_and_momentum() -> None:
    def one_cycle(optimizer: Optimizer) -> Any:
        return torchs.OneCycleLR(optimizer, 10 * optimizer.param_groups[0]["lr"], STEPS)

    model = made(perceptron)
    rates = (0.001, 0.02)
    race = hotswap.Race(
        model,
        [SGD(model.parameters(), lr=lr, momentum=0.9) for lr in rates],
        total_steps=STEPS,
        share=0.5,
        schedule=one_cycle,
    )
    for batch in minibatches(STEPS - 1):
        step(model, race, batch)
    assert race.winner is not None
    other = SGD(made(perceptron).parameters(), lr=rates[race._contest.lanes.index(race.winner)], momentum=0.9)
    scheduler = one_cycle(other)
    for number in range(STEPS - 1):
        stepped(scheduler, number)
    ours, theirs = (one.param_groups[0] for one in (race.winner.optimizer, other))
    assert (ours["lr"], ours["momentum"]) == pytest.approx((theirs["lr"], theirs["momentum"]), rel=1e-12)
