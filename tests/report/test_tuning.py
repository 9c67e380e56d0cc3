"""The expected best of k, by formula and by counting."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap.report.figures.style import spread
from hotswap.report.tuning import Measure, Tuning, best_of, price_of_tuning
from tests.report.algorithms import Greedy, Nadam, further_rows, registered
from tests.report.made_up import results, row


def priced(rows: list[dict[str, Any]], measure: Measure, **more: Any) -> Tuning:
    found = price_of_tuning(results(rows).metrics, measure, **more)
    assert found is not None
    return found


@given(st.lists(st.floats(0, 10, allow_subnormal=False), min_size=1, max_size=7))
def test_the_expectation_is_the_mean_over_all_searches(values: list[float]) -> None:
    expected, low, high = best_of(np.array(values))
    for k in range(1, len(values) + 1):
        bests = np.array([min(tried) for tried in combinations(values, k)])
        assert expected[k - 1] == pytest.approx(bests.mean(), rel=1e-9, abs=1e-12)
        assert (bests <= low[k - 1]).mean() >= 0.1 - 1e-9
        assert (bests <= high[k - 1]).mean() >= 0.9 - 1e-9
    assert expected[-1] == pytest.approx(min(values))
    assert (np.diff(expected) <= 1e-12).all()


def test_it_is_exact_for_as_many_settings_as_the_paper_has() -> None:
    expected, low, high = best_of(np.arange(1.0, 361.0))
    k = np.arange(1, 361)
    np.testing.assert_allclose(expected, 361 / (k + 1), rtol=1e-9)  # the smallest of k out of 1 … n
    assert (low <= expected).all()
    assert (low <= high).all()


def test_when_a_search_catches_up() -> None:
    rows = [row("sgd", lr=float(n), train_nll=float(n), test_error=n / 100) for n in range(1, 10)]
    rows += [row("ducb", 64, train_nll=2.0, test_error=0.001), row("ducb", 128, train_nll=5.0, test_error=0.02)]
    curve = priced(rows, "train_nll")
    assert curve.caught_up(5.0) == 1  # the mean of 1 … 9
    assert curve.caught_up(2.0) == 4  # 10 / (k + 1)
    assert curve.caught_up(0.5) is None
    assert curve.one_run == 3.5
    errors = priced(rows, "test_error")
    assert errors.caught_up(float(errors.levels[64])) is None


def test_a_setting_counts_once_with_the_median_of_its_seeds() -> None:
    rows = [row("sgd", seed=seed, train_nll=value) for seed, value in enumerate((1.0, 5.0, 9.0))]
    rows += [row("sgd", lr=0.3, train_nll=float("nan")), row("ducb", train_nll=1.0)]
    curve = priced(rows, "train_nll")
    assert curve.expected.tolist() == [5.0, 5.0]  # the setting that diverged is paid for, and as bad as the worst


def test_the_algorithm_with_the_most_settings_is_searched() -> None:
    with registered(nadam=Nadam, greedy=Greedy):
        curve = priced([*further_rows(), row("sgd"), row("stranger")], "train_nll")
    assert (curve.tuned, curve.reference) == ("nadam", "greedy")
    assert len(curve.expected) == 8
    assert curve.levels.index.to_list() == [64, 128]


def test_no_curve_without_both() -> None:
    assert price_of_tuning(results().metrics, "train_nll") is None
    assert price_of_tuning(results([row("sgd")]).metrics, "train_nll") is None
    assert price_of_tuning(results([row("ducb")]).metrics, "train_nll") is None


def test_labels_are_moved_apart_and_keep_their_order() -> None:
    moved = spread(np.array([0.5, 0.1, 0.11, 0.12]), 0.05)
    assert (np.diff(moved[[1, 2, 3, 0]]) >= 0.05 - 1e-12).all()
    assert moved.mean() == pytest.approx(0.2075)


def test_how_many_trainings_a_random_search_takes() -> None:
    """By counting: where the first of the settings that match comes in all orders of six."""
    rows = [row("sgd", lr=float(n), train_nll=float(n)) for n in range(1, 7)] + [row("ducb", train_nll=2.0)]
    curve = priced(rows, "train_nll")
    for good in range(1, 7):
        firsts = sorted(min(order.index(n) for n in range(good)) + 1 for order in permutations(range(6)))
        low, half, high = (firsts[math.ceil(share * len(firsts)) - 1] for share in (0.1, 0.5, 0.9))
        assert curve.until(float(good)) == (half, low, high)
    assert curve.until(0.5) is None


def test_what_searches_have_found_that_were_made_one_by_one() -> None:
    rows = [row("sgd", lr=float(n), train_nll=float(n)) for n in range(1, 6)] + [row("ducb", train_nll=2.0)]
    orders = [(0,), (4, 1, 0), (3, 2, 1, 0), (1, 0)]
    curve = priced(rows, "train_nll", orders=orders)
    assert curve.bayesian is not None
    assert curve.bayesian.bests.tolist() == [
        [1, 1, 1, 1, 1],
        [5, 2, 1, 1, 1],
        [4, 3, 2, 1, 1],
        [2, 1, 1, 1, 1],
    ]
    assert curve.bayesian.expected.tolist() == [3, 1.75, 1.25, 1, 1]
    assert curve.bayesian.caught_up(2.0) == 2
    assert curve.bayesian.until(2.0) == (1, 1, 3)
    assert curve.bayesian.until(1.0) == (2, 1, 4)
    assert curve.bayesian.until(0.5) is None
