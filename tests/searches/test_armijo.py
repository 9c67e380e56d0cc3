"""Sufficient decrease, each trial worked out by hand."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap import Armijo, FirstDecrease, SettingError
from hotswap.reference import armijo
from tests.searches.helpers import in_blocks, traced, walk_through

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("losses", "expected", "tried", "taken"),
    [
        # from 1.0, asking for a half of what is expected
        ([0.9, 0.6, 0.7], [4.0, 0.8, 0.4], [0, 1], 1),  # 0.1 is less than 2; 0.4 is exactly a half of 0.8
        ([0.9, 0.7, 0.8], [4.0, 0.8, 0.4], [0, 1, 2], 2),  # better is not enough: 0.3 < 0.4, but 0.2 ≥ 0.2
        ([0.9, 0.9, 0.9], [4.0, 2.0, 1.0], [0, 1, 2], -1),  # a decrease everywhere, nowhere enough
        ([NAN, INF, 0.5], [INF, NAN, 0.1], [0, 1, 2], 2),
        ([0.5, 0.9, 0.9], [INF, NAN, 0.1], [0, 1, 2], 2),  # what cannot be said is not enough
        ([1.2, 0.99, 0.5], [-1.0, -0.5, -0.2], [0, 1], 1),  # uphill: a rise is never taken, any decrease is
        ([1.0, 1.0, 0.9], [0.0, 0.0, 0.0], [0, 1, 2], 2),  # no slope at all: a decrease all the same
        ([-INF, 0.5, 0.5], [0.1, 0.1, 0.1], [0, 1], 1),
    ],
)
def test_walks(losses: list[float], expected: list[float], tried: list[int], taken: int) -> None:
    assert walk_through(Armijo(0.5), losses, 1.0, expected=expected) == (tried, taken)


@pytest.mark.parametrize(
    ("settings_", "losses", "tried", "taken"),
    [
        ({"when_stuck": "start"}, [0.9, 0.8, 0.95], [0, 1, 2], 0),  # the true loss of the first trial is finite
        ({"when_stuck": "start"}, [INF, 0.8, 0.95], [0, 1, 2], -1),
        ({"when_stuck": "smallest"}, [0.9, 0.8, 0.95], [0, 1, 2], 2),
        ({"when_stuck": "smallest"}, [0.9, 0.8, NAN], [0, 1, 2], -1),
        ({"when_stuck": "smallest", "max_trials": 2}, [0.9, 0.8, 0.0], [0, 1], 1),
        ({"max_trials": 2}, [0.9, 0.8, 0.0], [0, 1], -1),
    ],
)
def test_when_no_rate_is_enough(settings_: dict[str, Any], losses: list[float], tried: list[int], taken: int) -> None:
    assert walk_through(Armijo(0.5, **settings_), losses, 1.0, expected=[1.0] * 3) == (tried, taken)


def test_headroom_and_rows() -> None:
    losses, expected = [0.0, 0.0, 0.9, 0.5], [1.0] * 4
    assert walk_through(Armijo(0.5, headroom=1), losses, 1.0, 3, expected=expected) == ([2, 3], 3)
    assert walk_through(Armijo(0.5, headroom=3), losses, 1.0, 3, row=2, expected=expected) == ([2, 3], 3)


def test_the_walk_keeps_true_losses() -> None:
    search = Armijo(0.5)
    walk = search.begin(0, 1.0, arms=3)
    walk = search.observe(walk, 0.9, 1.0)
    assert (walk.first, walk.previous, walk.best, walk.best_loss, walk.improved) == (0.9, 0.9, -1, 1.0, False)
    walk = search.observe(walk, 0.5, 1.0)
    assert (walk.first, walk.previous, walk.best, walk.best_loss, walk.improved) == (0.9, 0.5, 1, 0.5, True)


def test_the_slope_comes_first() -> None:
    assert Armijo(0.3) == Armijo(slope=0.3, headroom=0, when_stuck="stay", max_trials=None)
    assert repr(Armijo()) == "Armijo(slope=0.1, headroom=0, when_stuck='stay', max_trials=None)"
    assert Armijo.needs_slope
    assert not FirstDecrease.needs_slope


@pytest.mark.parametrize("slope", [0, 1, -0.1, 1.5, NAN, INF, True, "0.1", None])
def test_a_slope_outside_of_0_and_1_is_refused(slope: Any) -> None:
    with pytest.raises(SettingError, match=r"^Armijo\(slope=.*\): slope must be in \(0, 1\)"):
        Armijo(slope)


def test_a_caller_that_does_not_say_what_is_expected() -> None:
    search = Armijo()
    with pytest.raises(SettingError, match="needs the expected decrease"):
        search.observe(search.begin(0, 1.0, arms=2), 0.5)


eighths = st.integers(-8, 24).map(lambda n: n / 8)  # sums and halves of which are exact
losses_ = st.one_of(st.integers(0, 16).map(lambda n: n / 8), st.sampled_from([NAN, INF, -INF]))


@given(
    rows=st.integers(1, 6).flatmap(
        lambda k: st.lists(st.lists(st.tuples(losses_, eighths), min_size=k, max_size=k), min_size=1, max_size=4)
    ),
    slope=st.sampled_from([0.125, 0.5, 0.75]),
    headroom=st.integers(0, 2),
    when_stuck=st.sampled_from(["stay", "start", "smallest"]),
    max_trials=st.sampled_from([None, 1, 2, 4]),
    data=st.data(),
)
@settings(max_examples=60)
def test_equals_the_oracle_alone_and_in_blocks(
    rows: list[list[tuple[float, float]]],
    slope: float,
    headroom: int,
    when_stuck: Any,
    max_trials: int | None,
    data: st.DataObject,
) -> None:
    search = Armijo(slope, headroom, when_stuck, max_trials)
    oracle = partial(armijo, slope=slope, headroom=headroom, when_stuck=when_stuck, max_trials=max_trials)
    table, expected = (np.array([[pair[place] for pair in row] for row in rows]) for place in (0, 1))
    runs, arms = table.shape
    proposals = data.draw(st.lists(st.integers(0, arms - 1), min_size=runs, max_size=runs))
    want_tried: list[list[int]] = []
    want_taken: list[int] = []
    for run, proposal in enumerate(proposals):
        tried: list[int] = []

        def trial(arm: int, run: int = run, tried: list[int] = tried) -> tuple[float, float]:
            tried.append(arm)
            loss = float(table[run, arm])
            return loss if math.isfinite(loss) else INF, float(expected[run, arm])

        taken = oracle(trial, 1.0, proposal, arms)
        want_tried.append(tried)
        want_taken.append(-1 if taken is None else taken)
        found = walk_through(search, table[run].tolist(), 1.0, proposal, expected=expected[run].tolist())
        assert found == (tried, want_taken[-1])
    for sizes in ((4, 8), (1, 1), (2, 3)):
        tried_, taken_, _ = in_blocks(
            search,
            torch.from_numpy(table),
            torch.tensor(proposals),
            sizes,
            expected=torch.from_numpy(expected),
        )
        assert (tried_, taken_) == (want_tried, want_taken)


def test_it_compiles_without_a_break() -> None:
    table = torch.tensor([[0.9, 0.6, 0.7], [0.9, 0.7, 0.8]], dtype=torch.float64)
    expected = torch.tensor([[4.0, 0.8, 0.4], [4.0, 0.8, 0.4]], dtype=torch.float64)
    assert traced(Armijo(0.5), table, torch.tensor([0, 0]), expected) == [1, 2]


@pytest.mark.gpu
def test_walks_on_a_gpu_are_those_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    table, expected = (2 * torch.rand(64, 9, generator=generator, dtype=torch.float64) for _ in range(2))
    proposals = torch.randint(0, 9, (64,), generator=generator)
    found = in_blocks(Armijo(), table, proposals, expected=expected)
    assert in_blocks(Armijo(), table.cuda(), proposals.cuda(), expected=expected.cuda()) == found
