"""When to stop."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest
import torch
from torch import nn

from hotswap import HotSwapSGD, SettingError, train_until
from hotswap.convergence import (
    Progress,
    all_of,
    any_of,
    epochs,
    gradient_norm_below,
    loss_below,
    no_move,
    plateau,
    steps,
)


def progress(losses: list[float] | None = None, **fields: Any) -> Progress:
    return Progress(**({"losses": array("d", losses or []), "steps": len(losses or [])} | fields))


@pytest.mark.parametrize(
    ("converged", "yes", "no"),
    [
        (steps(3), progress([1, 1, 1]), progress([1, 1])),
        (epochs(2), progress(epochs=2), progress(epochs=1)),
        (loss_below(0.5), progress([1, 0.4]), progress([0.1, 0.5])),
        (loss_below(0.5, window=2), progress([1, 0.4, 0.5]), progress([1, 0.1])),
        (loss_below(0.5, window=2), progress([0.4, 0.4]), progress([0.1])),
        (loss_below(0.5), progress([0.4]), progress([math.nan])),
        (plateau(2, 0.1), progress([1, 1, 0.95, 0.95]), progress([1, 1, 0.8, 0.8])),
        (plateau(2, 0.0), progress([1, 1, 1.1, 1]), progress([1, 1, 1])),
        (plateau(1, 0.1), progress([-1, -1.05]), progress([-1, -1.2])),
        (gradient_norm_below(0.1), progress(gradient_norm=lambda: 0.05), progress(gradient_norm=lambda: 0.1)),
        (no_move(4), progress(still=4), progress(still=3)),
        (any_of(steps(9), no_move(1)), progress(still=1), progress(still=0)),
        (all_of(steps(1), no_move(1)), progress([1], still=1), progress([1], still=0)),
        (any_of(), None, progress([1])),
    ],
)
def test_predicates(converged: Any, yes: Progress | None, no: Progress) -> None:
    assert yes is None or converged(yes)
    assert not converged(no)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: steps(0),
        lambda: epochs(-1),
        lambda: loss_below(math.nan),
        lambda: loss_below(1.0, window=0),
        lambda: plateau(0),
        lambda: plateau(5, tolerance=-1),
        lambda: gradient_norm_below(0.0),
        lambda: no_move(0),
        lambda: steps(1.5),  # type: ignore[arg-type]
        all_of,
    ],
)
def test_predicates_that_cannot_be_meant(mistake: Any) -> None:
    with pytest.raises(SettingError):
        mistake()


def bowl() -> tuple[nn.Parameter, HotSwapSGD]:
    parameter = nn.Parameter(torch.tensor([3.0, -4.0]))
    return parameter, HotSwapSGD([parameter], lr=[1.0, 0.3, 0.1])


def test_the_loop_yields_a_record_per_step_and_counts_epochs() -> None:
    parameter, optimizer = bowl()
    seen = [
        (p.steps, p.epochs, p.loss, p.record.values["lr"])
        for p in train_until(epochs(3), optimizer, lambda b: b * parameter.square().sum(), [1.0, 2.0])
    ]
    assert [s[:2] for s in seen] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert seen[0][2] == 25.0


def test_the_loop_stops_in_the_middle_of_an_epoch() -> None:
    parameter, optimizer = bowl()
    loop = train_until(loss_below(1.0), optimizer, lambda b: parameter.square().sum(), range(1000))
    last = [p.loss for p in loop]
    assert last[-1] < 1.0
    assert all(loss >= 1.0 for loss in last[:-1])


def test_the_loop_measures_the_gradient() -> None:
    parameter, optimizer = bowl()
    loop = train_until(steps(1), optimizer, lambda b: parameter.square().sum(), [0])
    assert [p.gradient_norm() for p in loop] == [10.0]


def test_the_loop_goes_on_until_the_gradient_is_small() -> None:
    parameter, optimizer = bowl()
    loop = train_until(gradient_norm_below(1.0), optimizer, lambda b: parameter.square().sum(), range(100))
    norms = [p.gradient_norm() for p in loop]
    assert norms[0] == 10.0
    assert norms[-1] < 1.0 <= min(norms[:-1])


def test_the_loop_counts_steps_that_do_not_move() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = HotSwapSGD([parameter], lr=[100.0, 50.0])
    assert [p.still for p in train_until(no_move(3), optimizer, lambda b: parameter.square().sum(), [0])] == [1, 2, 3]


def test_a_number_where_a_function_belongs() -> None:
    with pytest.raises(SettingError, match=r"the first says when to stop, such as convergence\.epochs\(10\)"):
        next(train_until(10, None, None, []))  # type: ignore[arg-type]


def test_a_loop_without_batches_says_so() -> None:
    parameter, optimizer = bowl()
    used_up = iter([1])
    with pytest.raises(SettingError, match="gave no batch in a whole epoch"):
        list(train_until(steps(5), optimizer, lambda b: parameter.square().sum(), used_up))


def test_converged_at_once_takes_no_step() -> None:
    _, optimizer = bowl()
    assert list(train_until(lambda p: True, optimizer, lambda b: 1 / 0, [1])) == []
