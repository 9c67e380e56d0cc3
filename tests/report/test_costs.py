"""What training has cost, and what it had reached at a cost: worked out by hand, and against counted passes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap.report.comparison import at_cost, reached, with_costs
from tests.report.made_up import results, row

INF, NAN = math.inf, math.nan


def frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    return results(rows).metrics


def test_a_plain_epoch_costs_one() -> None:
    rows = with_costs(frame([row("sgd", epoch=epoch) for epoch in (1, 2, 5, 500)]))
    assert rows["cost"].tolist() == [1, 2, 5, 500]
    assert rows["trials_so_far"].tolist() == [0, 0, 0, 0]


def test_trials_are_summed_over_all_epochs_recorded_or_not() -> None:
    """Epochs 1 and 2 have 3 and 2 trials; 3, 4 and 5 lie on a line from 2 to 5, so they have 3, 4 and 5."""
    rows = with_costs(frame([row("ducb", epoch=e, trials=t) for e, t in ((1, 3.0), (2, 2.0), (5, 5.0))]))
    assert rows["cost"].to_numpy() == pytest.approx([1 + 3 / 3, 2 + 5 / 3, 5 + 17 / 3])
    assert rows["trials_so_far"].to_numpy() == pytest.approx([3, 2.5, 17 / 5])


def test_passes_decide_where_they_are_counted() -> None:
    """781 steps an epoch; the trials of an epoch are not looked at, and passes that are not known are not guessed."""
    rows = [row("half", epoch=e, trials=1.0, passes=p) for e, p in ((1, 781 * 6.0), (2, 781 * 9.0), (5, NAN))]
    found = with_costs(frame(rows), counted={"half"})["cost"]
    assert found[:2].tolist() == [2, 3]
    assert math.isnan(found[2])


def test_runs_do_not_mix_whatever_their_order() -> None:
    rows = [row("ducb", seed=seed, epoch=e, trials=3.0 * seed) for e in (5, 1, 2) for seed in (1, 0)]
    found = with_costs(frame(rows)).set_index(["seed", "epoch"])["cost"]
    assert found[0].to_dict() == {1: 1, 2: 2, 5: 5}
    assert found[1].to_dict() == {1: 2, 2: 4, 5: 10}


COSTS = np.array([2.0, 4.0, 8.0])


@pytest.mark.parametrize(
    ("values", "cost", "expected"),
    [
        ((1.0, 0.1, 0.01), 4.0, 0.1),
        ((1.0, 0.1, 0.01), 2.0, 1.0),
        ((1.0, 0.1, 0.01), 8.0, 0.01),
        ((1.0, 0.1, 0.01), 6.0, math.sqrt(0.1 * 0.01)),  # halfway: the geometric mean
        ((1.0, 0.1, 0.01), 5.0, 0.1 ** (3 / 4) * 0.01 ** (1 / 4)),
        ((1.0, 0.1, 0.0), 6.0, 0.05),  # no logarithm of 0
        ((1.0, 0.1, INF), 6.0, INF),
        ((1.0, 0.1, INF), 4.0, 0.1),
        ((1.0, 0.1, 0.01), 1.9, NAN),  # nothing is guessed before the first record
        ((1.0, 0.1, 0.01), 8.1, NAN),  # nor after the last
        ((1.0, 0.1, 0.01), 8.0 + 1e-12, 0.01),  # but a rounding error is not beyond it
    ],
)
def test_what_was_reached_at_a_cost(values: tuple[float, ...], cost: float, expected: float) -> None:
    assert at_cost(COSTS, np.array(values), cost) == pytest.approx(expected, nan_ok=True)


def test_without_known_costs_nothing_is_known() -> None:
    assert math.isnan(at_cost(np.full(3, NAN), np.ones(3), 4.0))
    assert math.isnan(at_cost(np.array([]), np.array([]), 4.0))


@given(st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=6), st.floats(0, 1))
def test_between_records_it_is_between_their_values(values: list[float], share: float) -> None:
    costs = np.arange(1.0, len(values) + 1)
    at = int(share * (len(values) - 1) * 0.999)
    cost = at + 1 + (share * (len(values) - 1) * 0.999 - at)
    low, high = sorted(values[at : at + 2])
    assert low * (1 - 1e-9) <= at_cost(costs, np.array(values), cost) <= high * (1 + 1e-9)


def test_a_run_that_diverged_counts_as_infinite() -> None:
    rows = with_costs(frame([row("sgd", epoch=e, train_nll=v) for e, v in ((1, 1.0), (2, NAN))]))
    assert reached(rows, 2)["train_nll"].tolist() == [INF]
    assert reached(rows, 1)["train_nll"].tolist() == [1.0]
