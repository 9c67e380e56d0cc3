"""A walk up and down, each trial worked out by hand."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap import Backtracking, BothWays, SettingError
from hotswap.reference import both_ways
from tests.searches.helpers import check_walks, in_blocks, traced, walk_through

NAN, INF = math.nan, math.inf


def test_walks() -> None:
    check_walks(
        BothWays(),
        [
            ([0.9, 0.3, 0.5, 0.8, 0.1], 3, [3, 2, 1, 0], 1),  # up while each is better; the last one was worse
            ([0.2, 0.3, 0.5, 0.8, 0.1], 3, [3, 2, 1, 0], 0),  # up to the largest rate, and not down again
            ([0.2, 0.6, 0.5, 0.8, 0.1], 3, [3, 2, 1], 2),  # up once; smaller ones are not tried
            ([0.2, 3.0, 0.5, 0.4, 0.1], 2, [2, 1, 3, 4], 4),  # the first larger one is worse: down while that helps
            ([0.2, 3.0, 0.5, 0.6, 0.1], 2, [2, 1, 3], 2),  # neither helps
            ([0.2, 0.5, 0.5, 0.6, 0.1], 2, [2, 1, 3], 2),  # an equal loss is no reason to go up
            ([0.2, NAN, 0.5, 0.5, 0.4], 2, [2, 1, 3, 4], 4),  # nor to end the way down, as with Backtracking
            ([0.5, 0.4, 0.6, 0.1, 0.1], 0, [0, 1, 2], 1),  # there is no larger one: down at once
            ([0.2, 3.0, 2.0, 2.0, 0.1], 2, [2, 3, 4], 4),  # the proposal is too large: down, never up
            ([0.2, 3.0, 2.0, 2.0, 1.5], 2, [2, 3, 4], -1),  # nothing helps
            ([0.2, 3.0, 1.0, 1.0, 1.0], 2, [2, 3, 4], -1),  # what only equals the start point is no better
            ([NAN, INF, -INF, 0.5, 0.6], 0, [0, 1, 2, 3, 4], 3),
            ([0.9, 0.9, 0.9, 0.9, 0.5], 4, [4, 3], 4),  # there is no smaller one
            ([0.9, 0.9, 0.9, 0.4, 0.5], 4, [4, 3, 2], 3),
            ([0.1, 0.1, 0.1, 0.1, 2.0], 4, [4], -1),
        ],
    )


def test_rows() -> None:
    check_walks(
        BothWays(),
        [
            ([0.1, 0.1, 0.1, 0.5, 0.6, 0.7], 5, [5, 4, 3], 3),  # not up into the row before
            ([2.0, 2.0, 2.0, 0.1, 0.1, 0.1], 1, [1, 2], -1),  # nor down into the next
            ([0.1, 0.1, 0.1, 0.5, 0.4, 0.7], 3, [3, 4, 5], 4),
            ([0.9, 0.5, 0.4, 0.1, 0.1, 0.1], 1, [1, 0, 2], 2),
        ],
        row=3,
    )


def test_one_arm() -> None:
    check_walks(BothWays(), [([0.5], 0, [0], 0), ([1.5], 0, [0], -1)])


def test_max_trials() -> None:
    losses = [0.1, 0.2, 0.3, 0.4]
    assert walk_through(BothWays(max_trials=1), losses, 1.0, 2) == ([2], 2)
    assert walk_through(BothWays(max_trials=2), losses, 1.0, 2) == ([2, 1], 1)
    assert walk_through(BothWays(max_trials=3), [2.0, 2.0, 0.5, 0.4, 0.3], 1.0, 2) == ([2, 1, 3], 3)


@pytest.mark.parametrize("max_trials", [0, -1, 1.5, True, "2"])
def test_refuses(max_trials: Any) -> None:
    with pytest.raises(
        SettingError, match=r"^BothWays\(max_trials=.*\): max_trials must be a whole number of at least"
    ):
        BothWays(max_trials)


losses_ = st.one_of(st.integers(0, 12).map(lambda n: n / 8), st.sampled_from([NAN, INF, -INF]))


@given(
    rows=st.sampled_from([1, 2, 3, 4, 6, 12]).flatmap(
        lambda k: st.lists(st.lists(losses_, min_size=k, max_size=k), min_size=1, max_size=4)
    ),
    max_trials=st.sampled_from([None, None, 1, 2, 3, 5]),
    data=st.data(),
)
@settings(max_examples=60)
def test_equals_the_oracle_alone_and_in_blocks(
    rows: list[list[float]], max_trials: int | None, data: st.DataObject
) -> None:
    """Few different losses, so that many are equal; rows are tables of their own to the oracle."""
    table = np.array(rows)
    runs, arms = table.shape
    row = data.draw(st.sampled_from([size for size in (1, 2, 3, 4, 6, 12) if arms % size == 0]))
    proposals = data.draw(st.lists(st.integers(0, arms - 1), min_size=runs, max_size=runs))
    search, oracle = BothWays(max_trials), partial(both_ways, max_trials=max_trials)
    want_tried: list[list[int]] = []
    want_taken: list[int] = []
    for run, proposal in enumerate(proposals):
        tried: list[int] = []
        first = proposal // row * row

        def trial(arm: int, run: int = run, first: int = first, tried: list[int] = tried) -> tuple[float, float]:
            tried.append(first + arm)
            loss = float(table[run, first + arm])
            return loss if math.isfinite(loss) else INF, 0.0

        taken = oracle(trial, 1.0, proposal - first, row)
        want_tried.append(tried)
        want_taken.append(-1 if taken is None else first + taken)
        assert walk_through(search, table[run].tolist(), 1.0, proposal, row) == (tried, want_taken[-1])
    for sizes in ((4, 8), (1, 1), (2, 3)):
        tried_, taken_, _ = in_blocks(search, torch.from_numpy(table), torch.tensor(proposals), sizes, row)
        assert (tried_, taken_) == (want_tried, want_taken)


@given(st.lists(losses_, min_size=1, max_size=8), st.data())
@settings(max_examples=40)
def test_below_a_proposal_that_does_not_help_it_is_backtracking(losses: list[float], data: st.DataObject) -> None:
    proposal = data.draw(st.integers(0, len(losses) - 1))
    losses[proposal] = 1.5
    assert walk_through(BothWays(), losses, 1.0, proposal) == walk_through(Backtracking(), losses, 1.0, proposal)


@pytest.mark.parametrize("array", [np.asarray, torch.tensor])
def test_what_it_foresees(array: Any) -> None:
    search = BothWays()
    walk = search.begin(array([4, 0, 8, 1, 6]), array([1.0] * 5), arms=9)
    assert search.foresee(walk, 8).tolist() == [
        [4, 3, 5, 2, 6, 1, 7, 0],  # by turns
        [0, 1, 2, 3, 4, 5, 6, 7],  # there is nothing above
        [8, 7, 6, 5, 4, 3, 2, 1],  # nothing below
        [1, 0, 2, 3, 4, 5, 6, 7],  # one above
        [6, 5, 7, 4, 8, 3, 2, 1],  # two below
    ]
    assert search.foresee(search.begin(array([4]), array([1.0]), arms=9, row=3), 6).tolist() == [[4, 3, 5, 5, 5, 5]]
    walk = search.begin(array([4, 4, 4]), array([1.0] * 3), arms=9)
    walk = search.observe(walk, array([0.5, 0.5, 2.0]))
    assert search.foresee(walk, 6).tolist() == [[3, 5, 2, 6, 1, 7], [3, 5, 2, 6, 1, 7], [5, 6, 7, 8, 8, 8]]
    walk = search.observe(walk, array([0.4, 0.6, 3.0]))
    assert search.foresee(walk, 4).tolist() == [[2, 1, 0, 0], [5, 6, 7, 8], [6, 7, 8, 8]]


@pytest.mark.parametrize(
    ("losses", "trials", "blocks"),
    [
        ([9, 9, 9, 9, 9, 9, 0.5, 9, 9, 9, 9, 9, 9], 3, 1),  # neither way helps
        ([9, 9, 9, 9, 9, 0.4, 0.5, 9, 9, 9, 9, 9, 9], 3, 1),  # one up
        ([9, 9, 9, 9, 0.3, 0.4, 0.5, 9, 9, 9, 9, 9, 9], 4, 2),  # two up
        ([9, 9, 9, 9, 9, 9, 0.5, 0.4, 9, 9, 9, 9, 9], 4, 2),  # one down
        ([0.01, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 9, 9, 9, 9, 9, 9], 7, 2),  # up to the end
        ([9, 9, 9, 9, 9, 9, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.01], 8, 2),  # down to the end
        ([9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], 7, 2),  # nothing helps
    ],
)
def test_blocks_of_4_and_8_are_enough_for_most_walks(losses: list[float], trials: int, blocks: int) -> None:
    """From the arm in the middle, at a loss of 1."""
    tried, _, used = in_blocks(BothWays(), torch.tensor([losses], dtype=torch.float64), torch.tensor([6]))
    assert (len(tried[0]), used) == (trials, [blocks])


def test_it_compiles_without_a_break() -> None:
    table = torch.tensor([[0.2, 3.0, 0.5, 0.4, 0.1], [0.2, 0.3, 0.5, 0.8, 0.1]], dtype=torch.float64)
    assert traced(BothWays(max_trials=4), table, torch.tensor([2, 3]), torch.zeros(2, 5)) == [4, 0]
