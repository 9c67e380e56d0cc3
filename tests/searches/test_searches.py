"""The searches, each trial worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hotswap.searches
from hotswap import (
    Armijo,
    Arms,
    Backtracking,
    BothWays,
    DiscountedUCB,
    FirstDecrease,
    HotSwapSGD,
    NoSearch,
    Search,
    SettingError,
)
from hotswap.arrays import namespace
from hotswap.ensemble import Ensemble, HotSwapped, Mlp, TrainingData, Variant
from hotswap.searches import DownwardSearch
from hotswap.testing import check_search
from tests.searches.helpers import check_walks, shown, walk_through
from tests.searches.searches import UpThenDown

DOWNWARD: list[type[DownwardSearch]] = [Armijo, Backtracking, FirstDecrease]
SEARCHES: list[type[Search]] = [*DOWNWARD, BothWays, NoSearch]


def test_every_public_search_is_here() -> None:
    public = {
        value
        for name in hotswap.searches.__all__
        if isinstance(value := getattr(hotswap.searches, name), type) and issubclass(value, Search)
    } - {Search, DownwardSearch}
    assert public == set(SEARCHES)


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("losses", "proposal", "tried", "taken"),
    [
        ([2.0, 0.9, 0.8, 0.85, 0.1], 0, [0, 1, 2, 3], 2),  # past the first decrease, while it keeps falling
        ([0.9, 0.95, 0.1], 0, [0, 1], 0),  # the first trial improves, the second is worse
        ([2.0, 0.9, 0.9, 0.95], 0, [0, 1, 2, 3], 1),  # an equal loss does not end the walk, nor is it better
        ([0.5, 0.4, 0.3], 0, [0, 1, 2], 2),  # falling to the last arm
        ([3.0, 2.0, 1.0], 0, [0, 1, 2], -1),  # 1.0 only equals the start
        ([NAN, INF, -INF, 0.5, 0.6], 0, [0, 1, 2, 3, 4], 3),  # what is not finite is worse than anything
        ([0.1, 0.2, 0.3, 0.9, 0.95], 3, [3, 4], 3),  # never above the proposal
        ([0.9, NAN, 0.1], 0, [0, 1], 0),  # a NaN after an improvement is a rise
        ([1e38, 3.0e38, 0.7, 0.8], 0, [0, 1, 2, 3], 2),
    ],
)
def test_backtracking(losses: list[float], proposal: int, tried: list[int], taken: int) -> None:
    assert walk_through(Backtracking(), losses, 1.0, proposal) == (tried, taken)


@pytest.mark.parametrize(
    ("losses", "tried", "taken"),
    [
        ([2.0, 0.9, 0.8, 0.1], [0, 1], 1),
        ([0.9, 0.1], [0], 0),
        ([NAN, 1.0, 2.0], [0, 1, 2], -1),
    ],
)
def test_first_decrease(losses: list[float], tried: list[int], taken: int) -> None:
    assert walk_through(FirstDecrease(), losses, 1.0) == (tried, taken)


@pytest.mark.parametrize(
    ("when_stuck", "losses", "taken"),
    [
        ("stay", [3.0, 2.0, 1.5], -1),
        ("start", [3.0, 2.0, 1.5], 0),
        ("smallest", [3.0, 2.0, 1.5], 2),
        ("start", [NAN, 2.0, 1.5], -1),  # never a step that is not finite
        ("smallest", [3.0, 2.0, INF], -1),
        ("start", [3.0, 0.5, 1.5], 1),  # not stuck
    ],
)
def test_when_stuck(when_stuck: Any, losses: list[float], taken: int) -> None:
    assert walk_through(Backtracking(when_stuck=when_stuck), losses, 1.0)[1] == taken


def test_headroom_begins_above_the_proposal() -> None:
    losses = [2.0, 0.5, 0.6, 0.7]
    assert walk_through(Backtracking(headroom=1), losses, 1.0, proposal=2) == ([1, 2], 1)
    assert walk_through(Backtracking(headroom=9), losses, 1.0, proposal=2) == ([0, 1, 2], 1)


def test_max_trials() -> None:
    losses = [4.0, 3.0, 2.0, 0.5]
    assert walk_through(Backtracking(max_trials=2), losses, 1.0) == ([0, 1], -1)
    assert walk_through(Backtracking(max_trials=2, when_stuck="smallest"), losses, 1.0) == ([0, 1], 1)


def test_a_walk_stays_in_its_row() -> None:
    """Six arms are two settings with three rates each."""
    losses = [0.1, 0.1, 0.1, 4.0, 3.0, 2.0]
    assert walk_through(Backtracking(), losses, 1.0, proposal=3, row=3) == ([3, 4, 5], -1)
    assert walk_through(Backtracking(headroom=2), losses, 1.0, proposal=4, row=3) == ([3, 4, 5], -1)
    assert walk_through(Backtracking(), [4.0, 3.0, 2.0, 0.1, 0.1, 0.1], 1.0, proposal=1, row=3) == ([1, 2], -1)


loss = st.one_of(st.floats(0, 10), st.sampled_from([NAN, INF, -INF, 1e38]))


@pytest.mark.parametrize("kind", DOWNWARD)
@given(
    table=st.integers(1, 6).flatmap(lambda k: st.lists(st.lists(loss, min_size=k, max_size=k), min_size=1, max_size=5)),
    headroom=st.integers(0, 2),
    data=st.data(),
)
@settings(max_examples=80)
def test_many_runs_at_once_are_the_same_as_one_by_one(
    kind: type[DownwardSearch], table: list[list[float]], headroom: int, data: st.DataObject
) -> None:
    search = kind(headroom=headroom)
    arms = len(table[0])
    proposals = data.draw(st.lists(st.integers(0, arms - 1), min_size=len(table), max_size=len(table)))
    losses = torch.tensor(table, dtype=torch.float64)
    walk = search.begin(torch.tensor(proposals), torch.ones(len(table), dtype=torch.float64), arms=arms)
    trips = 0
    while not walk.done.all():
        walk = shown(search, walk, losses.gather(1, walk.arm.unsqueeze(1)).squeeze(1), torch.zeros(len(table)))
        trips += 1
        assert trips <= arms
    for run, proposal in enumerate(proposals):
        tried, taken = walk_through(search, table[run], 1.0, proposal)
        assert int(search.choose(walk)[run]) == taken
        assert int(walk.arm[run]) == tried[-1]
        if taken >= 0:
            assert table[run][taken] < 1.0


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"headroom": -1}, "headroom must be a whole number, 0 or more"),
        ({"headroom": 1.5}, "headroom must be a whole number"),
        ({"when_stuck": "panic"}, "when_stuck must be one of 'stay', 'start', 'smallest'"),
        ({"max_trials": 0}, "max_trials must be a whole number of at least 1, or None"),
        ({"max_trials": True}, "max_trials must be"),
    ],
)
@pytest.mark.parametrize("kind", DOWNWARD)
def test_refuses(kind: type[DownwardSearch], settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        kind(**settings_)


@pytest.mark.parametrize(
    "search",
    [
        *(kind() for kind in SEARCHES),
        Backtracking(2, "start", 3),
        Backtracking(when_stuck="start"),
        FirstDecrease(1, "smallest"),
        Armijo(0.5, 1, "start", 4),
        Armijo(0.9, when_stuck="smallest"),
        BothWays(max_trials=2),
        UpThenDown(),
    ],
    ids=repr,
)
def test_every_search_conforms(search: Search) -> None:
    check_search(search)


def test_every_registered_search_conforms() -> None:
    for kind in hotswap.searches.SEARCHES.values():
        check_search(kind())


class TestUpThenDown:
    """A search that may walk to larger rates, too."""

    def test_walks(self) -> None:
        check_walks(
            UpThenDown(),
            [
                ([0.9, 0.3, 0.5, 0.8, 0.1], 3, [3, 2, 1, 0], 1),  # up while the loss falls; the last one was worse
                ([0.2, 0.3, 0.5, 0.8, 0.1], 3, [3, 2, 1, 0], 0),  # up to the largest rate
                ([0.2, 3.0, 2.0, 2.0, 0.1], 2, [2, 3, 4], 4),  # too large: down until something is better
                ([0.2, 3.0, 2.0, 2.0, 1.5], 2, [2, 3, 4], -1),  # nothing is
                ([0.2, 3.0, 0.5, 2.0, 0.1], 2, [2, 1], 2),  # better, but not further up
                ([NAN, INF, NAN, 0.5, 0.1], 0, [0, 1, 2, 3], 3),
                ([0.5, 0.1, 0.1, 0.1, 0.1], 0, [0], 0),
            ],
        )

    def test_rows(self) -> None:
        check_walks(
            UpThenDown(),
            [
                ([0.1, 0.1, 0.1, 0.5, 0.6, 0.7], 5, [5, 4, 3], 3),
                ([2.0, 2.0, 2.0, 0.1, 0.1, 0.1], 1, [1, 2], -1),
            ],
            row=3,
        )


@dataclass(frozen=True)
class Endless(UpThenDown):
    def observe(self, walk: Any, loss: Any) -> Any:
        return walk


@dataclass(frozen=True)
class LeavesItsRow(Backtracking):
    def begin(self, proposal: Any, loss_before: Any, *, arms: int, row: int | None = None) -> Any:
        return super().begin(proposal, loss_before, arms=arms)


@dataclass(frozen=True)
class TakesWhatItDidNotTry(Backtracking):
    def choose(self, walk: Any) -> Any:
        return walk.start - 1


@dataclass(frozen=True)
class TakesWhatIsNotFinite(Backtracking):
    def choose(self, walk: Any) -> Any:
        return walk.arm


@dataclass(frozen=True)
class WakesUp(UpThenDown):
    def observe(self, walk: Any, loss: Any) -> Any:
        after = super().observe(walk, loss)
        return after._replace(best=namespace(loss).where(walk.done, -1, after.best))


@dataclass(frozen=True)
class ForeseesElsewhere(Backtracking):
    def foresee(self, walk: Any, count: int) -> Any:
        return super().foresee(walk, count) * 0


@dataclass(frozen=True)
class TriesAfterAll(Backtracking):
    tries = False


@dataclass(frozen=True)
class TakesAnotherRow(NoSearch):
    def choose(self, walk: Any) -> Any:
        return walk.arm * 0 + 11


@dataclass(frozen=True)
class ForgetsToSayThatItDoesNotTry(NoSearch):
    tries = True


@dataclass(frozen=True)
class ForgetsItsFirstTrial(Backtracking):
    """What it is shown after the end of its walk takes the place of its first trial."""

    when_stuck: Any = "start"

    def observe(self, walk: Any, loss: Any, expected: Any = None) -> Any:
        after = super().observe(walk, loss)
        return after._replace(first=namespace(loss).where(walk.done, math.inf, after.first))


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (TriesAfterAll(), "it has `tries = False`, but its walk begins with a trial"),
        (TakesAnotherRow(), "it takes arm 11, but it has to stay in"),
        (ForgetsToSayThatItDoesNotTry(), "takes arm .*, which it has not tried"),
        (ForgetsItsFirstTrial(), "a walk that has ended changes"),
        (Endless(), "Endless: its walk does not end"),
        (LeavesItsRow(), "it walks to arm .*, but it has to stay in"),
        (TakesWhatItDidNotTry(), "takes arm .*, which it has not tried"),
        (TakesWhatIsNotFinite(), "takes arm .*, whose loss was (nan|inf)"),
        (WakesUp(), "a walk that has ended changes"),
        (ForeseesElsewhere(), "begin with the walk's arm"),
    ],
)
def test_what_is_wrong_is_said(search: Search, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_search(search)


@pytest.mark.parametrize("array", [np.asarray, torch.tensor])
def test_what_a_search_foresees(array: Any) -> None:
    losses = array([1.0, 1.0])
    walk = Backtracking().begin(array([0, 3]), losses, arms=5)
    assert Backtracking().foresee(walk, 3).tolist() == [[0, 1, 2], [3, 4, 4]]
    assert UpThenDown().foresee(UpThenDown().begin(array([0, 3]), losses, arms=5), 3).tolist() == [[0] * 3, [3] * 3]


class Endless(Backtracking):
    """Tries the same arm again and again."""

    def observe(self, walk: Any, loss: Any) -> Any:
        return walk


def test_a_search_without_end_is_broken_off() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = HotSwapSGD([parameter], lr=[1.0, 0.1], search=Endless())
    with pytest.raises(SettingError, match="Endless has not ended after 20 trials in one step"):
        optimizer.step(lambda: parameter @ parameter)
    assert parameter.tolist() == [1.0] * 3
    model = Mlp((4, 3))
    update = HotSwapped(
        model, model.initial([0]), [(Variant(Arms.of({"lr": [1.0, 0.1]}), DiscountedUCB(), Endless()), 1)]
    )
    x, y = torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)
    with pytest.raises(SettingError, match="Endless has not ended"):
        Ensemble(update, TrainingData(x, y, x, y), 4, data_seed=0).train_epoch(0)
