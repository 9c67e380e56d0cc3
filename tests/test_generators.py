"""Random numbers as arrays: the same in NumPy and in torch, and without structure between runs, draws and places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from hotswap.generators import generators, normal, uniform

RUNS, DRAWS, PLACES = 64, 64, 32


def many(draw: Any = uniform, first: int = 0) -> Any:
    """`(RUNS, DRAWS, PLACES)` numbers from seeds that follow one another, as people choose them."""
    generator, values = generators(range(first, first + RUNS)), []
    for _ in range(DRAWS):
        drawn, generator = draw(generator, PLACES)
        values.append(drawn)
    return np.stack(values, axis=1)


def bound(count: int) -> float:
    """Five standard errors of a mean of `count` numbers of variance 1."""
    return 5 / math.sqrt(count)


def test_uniform_numbers_look_it() -> None:
    values = many()
    assert values.min() > 0
    assert values.max() < 1
    scaled = (values - 0.5) * math.sqrt(12)
    assert abs(scaled.mean()) < bound(values.size)
    assert abs((scaled**2).mean() - 1) < bound(values.size)
    assert np.unique(values).size == values.size
    counts = np.histogram(values, bins=100, range=(0, 1))[0]
    expected = values.size / 100
    assert ((counts - expected) ** 2 / expected).sum() < 99 + 5 * math.sqrt(2 * 99)  # chi-squared


@pytest.mark.parametrize("bits", range(1, 9))
def test_low_bits_are_as_random_as_high_ones(bits: int) -> None:
    scaled = many() * 2.0**44  # what is left behind the point are the lowest 8 bits
    bit = np.floor((scaled % 1) * 2**bits) % 2
    assert abs((2 * bit - 1).mean()) < bound(bit.size)


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["runs", "draws", "places"])
@pytest.mark.parametrize("lag", [1, 2, 7])
@pytest.mark.parametrize("first", [0, -32, 2**40])
def test_neighbours_are_uncorrelated(axis: int, lag: int, first: int) -> None:
    values = np.moveaxis((many(first=first) - 0.5) * math.sqrt(12), axis, 0)
    products = values[lag:] * values[:-lag]
    assert abs(products.mean()) < bound(products.size)


def test_no_draw_of_a_run_repeats_another_runs() -> None:
    """Place p + 1 of draw d, or draw d + 1, of one seed must not be place p of another."""
    values = many()
    assert np.intersect1d(values[0].ravel(), values[1:].ravel()).size == 0


def test_normal_numbers_look_it() -> None:
    values = many(normal)
    assert abs(values.mean()) < bound(values.size)
    assert abs((values**2).mean() - 1) < math.sqrt(2) * bound(values.size)
    assert abs((values**4).mean() - 3) < math.sqrt(96) * bound(values.size)
    assert abs((np.abs(values) > 1.96).mean() - 0.05) < 0.3 * bound(values.size)


@pytest.mark.parametrize("seeds", [range(5), [-1, -(2**63), 2**63 - 1, 12345678901234567]])
def test_numpy_and_torch_agree_to_the_bit(seeds: Any) -> None:
    ours, theirs = generators(seeds), generators(seeds, torch.device("cpu"))
    for _ in range(3):
        values, ours = uniform(ours, 7)
        others, theirs = uniform(theirs, 7)
        assert others.dtype == torch.float64
        assert theirs.dtype == torch.int64
        assert np.array_equal(values, others.numpy())
        assert np.array_equal(ours, theirs.numpy())
    np.testing.assert_allclose(normal(ours, 5)[0], normal(theirs, 5)[0].numpy(), rtol=1e-12)


def test_a_run_draws_the_same_numbers_alone_and_after_a_pause() -> None:
    together = generators([5, 6, 7])
    alone = generators([6])
    for _ in range(3):
        values, together = uniform(together, 4)
        single, alone = uniform(alone, 4)
        assert values[1].tolist() == single[0].tolist()
    again = np.array([[6, 2]])  # what was saved before the last draw
    assert uniform(again, 4)[0].tolist() == single.tolist()


def test_drawing_changes_no_generator() -> None:
    generator = generators([1, 2])
    uniform(generator, 3)
    assert generator.tolist() == [[1, 0], [2, 0]]


def test_any_whole_number_is_a_seed() -> None:
    seeds = [0, -1, 2**63, 2**64 - 1, -(2**80) + 3]
    assert generators(seeds)[:, 0].tolist() == [0, -1, -(2**63), -1, 3]
    assert generators([]).shape == (0, 2)
