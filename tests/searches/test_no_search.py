"""A step without a trial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotswap import Backtracking, NoSearch
from hotswap.reference import no_search
from tests.searches.helpers import in_blocks, walk_through


@given(st.integers(1, 12), st.data())
def test_takes_the_proposal_untried_as_the_oracle_does(arms: int, data: st.DataObject) -> None:
    proposal = data.draw(st.integers(0, arms - 1))

    def trial(arm: int) -> tuple[float, float]:
        raise AssertionError(arm)

    assert walk_through(NoSearch(), [9.0] * arms, 1.0, proposal) == ([], no_search(trial, 1.0, proposal, arms))


@pytest.mark.parametrize("array", [np.asarray, torch.tensor])
def test_many_runs(array: Any) -> None:
    search = NoSearch()
    walk = search.begin(array([3, 0, 5]), array([1.0, 2.0, 3.0]), arms=6, row=3)
    assert walk.done.tolist() == [True] * 3
    walk = search.observe(walk, array([0.1, 0.1, 0.1]))
    assert search.choose(walk).tolist() == [3, 0, 5]
    assert search.foresee(walk, 2).tolist() == [[3, 3], [0, 0], [5, 5]]


def test_no_block_is_evaluated() -> None:
    found = in_blocks(NoSearch(), torch.ones(2, 4, dtype=torch.float64), torch.tensor([1, 3]))
    assert found == ([[], []], [1, 3], [0, 0])


def test_it_says_that_it_does_not_try() -> None:
    assert not NoSearch.tries
    assert Backtracking.tries
    assert NoSearch() == NoSearch()
