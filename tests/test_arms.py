"""Grids and products of them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from hotswap import Arms, SettingError, log_grid


def test_the_default_grid_is_a_quarter_of_a_decade_apart() -> None:
    grid = log_grid()
    assert isinstance(grid, tuple)
    assert len(grid) == 33
    assert (grid[0], grid[-1]) == (1e2, 1e-6)
    assert all(type(rate) is float for rate in grid)
    ratios = [a / b for a, b in itertools.pairwise(grid)]
    assert ratios == pytest.approx([10**0.25] * 32)
    assert grid[8] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"high": 1, "low": 0.01, "count": 3}, (1.0, 0.1, 0.01)),
        ({"high": 0.5, "low": 0.5, "count": 1}, (0.5,)),
        ({"high": 2.0, "low": 1.0, "count": 1}, (2.0,)),
        ({"high": 2.0, "low": 1.0, "count": 2}, (2.0, 1.0)),
        ({"high": np.float32(1), "low": np.float64(0.5), "count": 2}, (1.0, 0.5)),
    ],
)
def test_small_grids(arguments: dict[str, Any], expected: tuple[float, ...]) -> None:
    assert log_grid(**arguments) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be a whole number of at least 1"),
        ({"count": 2.5}, "count must be a whole number"),
        ({"high": 1e-3, "low": 1e-1}, "the bounds are reversed"),
        ({"high": 1.0, "low": 1.0, "count": 2}, "need high to be larger than low"),
        ({"low": 0.0}, "low must be a positive, finite rate"),
        ({"high": math.inf}, "high must be a positive, finite rate"),
        ({"low": math.nan}, "low must be a positive, finite rate"),
    ],
)
def test_grids_that_cannot_be_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        log_grid(**arguments)


def test_values_come_in_any_order() -> None:
    arms = Arms.of({"lr": [0.01, 1, 0.1]})
    assert arms.axes == ((1.0, 0.1, 0.01),)
    assert [arms.values(k) for k in range(len(arms))] == [{"lr": 1.0}, {"lr": 0.1}, {"lr": 0.01}]


def test_a_product_walks_along_the_rate() -> None:
    arms = Arms.of({"lr": [1.0, 0.1], "momentum": [0.0, 0.9], "betas": [(0.9, 0.99), (0.5, 0.5)]})
    assert arms.names == ("momentum", "betas", "lr")
    assert (len(arms), arms.row) == (8, 2)
    assert arms.values(0) == {"momentum": 0.9, "betas": (0.9, 0.99), "lr": 1.0}
    assert arms.values(1) == {"momentum": 0.9, "betas": (0.9, 0.99), "lr": 0.1}
    assert arms.values(7) == {"momentum": 0.0, "betas": (0.5, 0.5), "lr": 0.1}
    assert len({str(arms.values(k)) for k in range(8)}) == 8


def test_without_a_rate_the_last_name_is_walked_along() -> None:
    assert Arms.of({"weight_decay": [0.0, 0.1], "momentum": [0.5, 0.9, 0.0]}).row == 3


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "no hyperparameter was named"),
        ({"lr": []}, "lr has no values"),
        ({"lr": [0.1, 0.2, 0.1]}, r"lr has duplicate values \(0\.1\)"),
        ({"lr": [0.1, 0.0]}, "a learning rate must be positive"),
        ({"lr": [0.1, -1.0]}, "a learning rate must be positive"),
        ({"lr": [0.1, math.inf]}, "every value must be finite"),
        ({"momentum": [math.nan]}, "every value must be finite"),
        ({"lr": 0.1}, r"give those to choose from, such as hotswap\.log_grid"),
        ({"lr": "0.1"}, "is not a sequence of values"),
        ({"lr": [None]}, "is not a number"),
        ({"lr": [(0.1, 0.2)]}, "is not a number"),
    ],
)
def test_arms_that_cannot_be_meant(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Arms.of(choices)


def test_an_arm_that_is_not_there() -> None:
    with pytest.raises(SettingError, match="there is no arm 3; they are numbered 0 to 2"):
        Arms.of({"lr": [1, 2, 3]}).values(3)
