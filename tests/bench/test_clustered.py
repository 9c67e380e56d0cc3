"""What the one writer of a benchmark does, and what a worker does for it, without a cluster between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotswap.bench.clustered import _BenchKeeper, load_datasets
from hotswap.bench.methods import FIRST, SECOND
from hotswap.bench.posting import BenchWork
from hotswap.bench.running import BenchOptions
from hotswap.bench.runs import Point, Result, Run, State
from hotswap.bench.store import BenchStore
from hotswap.bench.training import train
from hotswap.cluster import Where
from hotswap.data import load_digits, registry
from hotswap.errors import DataError, StudyError
from tests.bench.helpers import Silent, made

W = "paper_network"
NODE = Where("node-3", 4711)


class Desk:
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[Any] = []

    def post(self, message: object) -> None:
        self.posted.append(message)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BenchStore]:
    with BenchStore.create(tmp_path, "smoke") as store:
        yield store


def told(keeper: _BenchKeeper, unit: str, *messages: object) -> None:
    keeper.begins(unit, NODE)
    with keeper.together():
        for message in messages:
            keeper.receive(unit, message)


def ended(keeper: _BenchKeeper, result: Result) -> None:
    assert keeper.take_up(result.run.id)
    told(keeper, result.run.id, *result.points, result)
    keeper.put_down(result.run.id, finished=True)


def test_what_follows_from_results_is_planned_when_they_are_there(store: BenchStore) -> None:
    silent = Silent()
    with _BenchKeeper(store, BenchOptions(workloads=[W], methods=["salsa"]), silent) as keeper:
        first = [piece.id for piece in keeper.plan()]
        assert first == [Run(W, "salsa", FIRST, seed).id for seed in range(5)]
        for seed in range(4):
            ended(keeper, made(W, "salsa", seed))
            assert keeper.plan() == []
        ended(keeper, made(W, "salsa", 4, state="failed"))
        assert [piece.payload.configuration for piece in keeper.plan()] == [SECOND] * 5
    assert silent.plans[-1] == (5, 10)
    assert len(silent.ended) == len(store.results()) == 5


def test_a_row_is_there_before_the_run_is_let_go(store: BenchStore) -> None:
    result = made(W, "adamw")
    with _BenchKeeper(store, BenchOptions(workloads=[W], methods=["adamw"]), Silent()) as keeper:
        keeper.plan()
        assert keeper.take_up(result.run.id)
        assert store.running(result.run) is None  # it waits for room
        told(keeper, result.run.id, *result.points, result)
        assert store.running(result.run) == "node-3, process 4711"
        (stored,) = store.results().values()
        assert stored.points == result.points
        assert {"command", "date"} <= set(stored.origin)
        keeper.interrupted(result.run.id, "its node died")
        assert store.running(result.run) is None
        keeper.put_down(result.run.id, finished=False, error="its worker died\n\nin full")
    assert store.results() == {result.run.id: stored}  # only its last word was lost


def test_a_run_that_was_killed_three_times_has_a_row(store: BenchStore) -> None:
    points = made(W, "adamw").points
    silent = Silent()
    with _BenchKeeper(store, BenchOptions(workloads=[W], methods=["adamw"]), silent) as keeper:
        units = [piece.id for piece in keeper.plan()]
        assert all(keeper.take_up(unit) for unit in units)
        told(keeper, units[0], *points[:5])
        told(keeper, units[0], *points[:3])
        keeper.put_down(units[0], finished=False, error="its worker died (of hunger)\n\nand much more")
        keeper.put_down(units[1], finished=False, error="SettingError: mine.py cannot be loaded\n\nand much more")
        keeper.put_down(units[2], finished=False)  # stopped before it began
    rows = list(store.results().values())
    assert [(row.state, row.reason, row.points) for row in rows] == [
        ("killed", "It was tried three times; the last time: its worker died (of hunger)", points[:3]),
        ("killed", "It was tried three times; the last time: SettingError: mine.py cannot be loaded", ()),
    ]
    assert [row.run.id for row in silent.ended] == units[:2]


def test_a_run_in_other_hands_is_not_taken_up(store: BenchStore) -> None:
    silent = Silent()
    with _BenchKeeper(store, BenchOptions(workloads=[W], methods=["adamw"]), silent) as keeper:
        piece = keeper.plan()[0]
        with store.holding(piece.payload):
            assert not keeper.take_up(piece.id)
        assert piece.id in silent.said[0]
        assert keeper.take_up(piece.id)
        with pytest.raises(StudyError, match="which nobody asked for"):
            keeper.receive(piece.id, "something else")


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_a_worker_posts_what_training_here_gives(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    if state == "failed":
        monkeypatch.setattr("hotswap.bench.methods.torch_optimizers.AdamW.begin", lambda *_: 1 / 0)
    run, desk = Run(W, "adamw", FIRST, 0, "smoke"), Desk()
    states = list(BenchWork("here", "cpu", 1)(run, {}, desk))
    result, here = desk.posted[-1], train(run)
    assert states == [False] * (len(desk.posted) - 1) + [True]
    assert (result.state, result.reason, here.state) == (state, here.reason, state)
    assert all(isinstance(point, Point) for point in desk.posted[:-1])
    untimed = [[point._replace(seconds=0.0) for point in one.points] for one in (result, here)]
    assert untimed[0] == untimed[1]


def test_data_that_were_sent_are_those_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_HANDED_OVER", {})
    run, desk = Run(W, "adamw", FIRST, 0, "smoke"), Desk()
    before = train(run)
    digits = load_digits()
    other = replace(digits, train_labels=(digits.train_labels + 1) % 10)
    other.train_labels.flags.writeable = False  # as in memory that processes share
    list(BenchWork("there", "cpu", 1)(run, {"digits": other}, desk))
    assert desk.posted[0].train != before.points[0].train


def test_data_sets_that_cannot_be_had_are_left_to_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert list(load_datasets([W, "autoencoder", "logistic_regression"], "smoke", said.append)) == ["digits"]

    def nowhere(*_: object) -> None:
        raise DataError("MNIST cannot be had.")

    monkeypatch.setitem(registry.DATASETS._known, "mnist", nowhere)
    assert load_datasets([W, "logistic_regression"], "full", said.append) == {}
    assert said[-1] == "mnist is not sent to the nodes, which may have it: MNIST cannot be had."
