"""A benchmark can be stopped anywhere, and goes on where it was; whatever happens is a row."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotswap.bench import running
from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.plan import CHOOSING
from hotswap.bench.running import BenchOptions, BenchWork, load_datasets, run_bench, train_run
from hotswap.bench.runs import Run, State
from hotswap.bench.store import BenchStore
from hotswap.bench.training import train
from hotswap.bench.workloads import WORKLOADS
from hotswap.data import DATASETS, Dataset, registry
from hotswap.errors import DataError
from hotswap.work import Here, Setting, WorkerDiedError
from tests.bench.helpers import Pretending, Silent

W = "paper_network"
ALL = BenchOptions(workloads=[W], methods=list(METHODS))
ONE = BenchOptions(workloads=[W], methods=["adamw"])


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pretending]:
    """From now on, results are made up."""

    def made(fate: Callable[[Run], State] = lambda _: "finished") -> Pretending:
        pretending = Pretending(fate)
        monkeypatch.setattr(running, "train_run", pretending)
        return pretending

    return made


def go(store: BenchStore, options: BenchOptions, **more: Any) -> bool:
    return run_bench(store, options, "cpu", more.pop("watcher", Silent()), **more)


def run_of(seed: int) -> Run:
    return Run(W, "adamw", FIRST, seed, "smoke")


def test_all_of_it_in_the_order_that_results_allow(tmp_path: Path, pretend: Callable[..., Pretending]) -> None:
    trained, watcher, store = pretend(), Silent(), BenchStore.create(tmp_path, "smoke")
    assert go(store, ALL, watcher=watcher)
    found = BenchStore.open(tmp_path).results()
    assert len(trained.asked) == len(set(trained.asked)) == len(found) == 20 + 5 * len(METHODS)
    best = Run(W, REFERENCE, SEARCHED[-1], 0).id  # the pretended best
    searched = {Run(W, REFERENCE, name, CHOOSING).id for name in SEARCHED}
    assert searched <= set(trained.asked[: trained.asked.index(best)])
    assert watcher.plans[-1] == (len(found), len(found))
    assert len(watcher.ended) == len(found)
    assert watcher.points > 0
    assert all({"command", "date"} <= set(result.origin) for result in found.values())


def test_stopped_and_gone_on(tmp_path: Path, pretend: Callable[..., Pretending]) -> None:
    store, first = BenchStore.create(tmp_path, "smoke"), pretend()
    assert not go(store, ALL, asked_to_stop=lambda: len(first.asked) >= 7)
    assert len(store.results()) == 7
    second = pretend()
    assert go(store, ALL)
    assert not set(first.asked) & set(second.asked)
    nothing = pretend()
    assert go(store, ALL)
    assert not nothing.asked


def test_no_run_begins_after_the_time(tmp_path: Path, pretend: Callable[..., Pretending]) -> None:
    trained = pretend()
    assert not go(BenchStore.create(tmp_path, "smoke"), replace(ONE, stop_after=0.0))
    assert trained.asked == []


@pytest.mark.parametrize(
    ("state", "again", "when_asked"),
    [("finished", 0, 0), ("diverged", 0, 0), ("failed", 0, 5), ("missing", 5, 5), ("killed", 5, 5)],
)
def test_what_another_try_may_change_is_tried_again_once(
    tmp_path: Path, pretend: Callable[..., Pretending], state: State, again: int, when_asked: int
) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    pretend(lambda _: state)
    assert go(store, ONE)
    assert {result.state for result in store.results().values()} == {state}
    for options, expected in ((ONE, again), (replace(ONE, retry_failed=True), when_asked)):
        trained = pretend(lambda _: state)
        go(store, options)
        assert len(trained.asked) == expected


def test_what_is_damaged_or_of_the_past_is_trained_anew(tmp_path: Path, pretend: Callable[..., Pretending]) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    pretend()
    assert go(store, ONE)
    file = store.units.file(run_of(1).id)
    file.write_bytes(file.read_bytes()[:-5])
    old = store.results()[run_of(2).id]
    store.record([replace(old, version=old.version - 1)])
    states = {run: result.state for run, result in store.results().items()}
    assert states == {run_of(seed).id: "outdated" if seed == 2 else "finished" for seed in (0, 2, 3, 4)}
    assert f"{file} is damaged" in store.damaged[0]
    trained = pretend()
    assert go(store, ONE)
    assert trained.asked == [run_of(seed).id for seed in (1, 2)]
    assert {result.state for result in store.results().values()} == {"finished"}


def test_a_method_that_fails_has_both_its_configurations_shown(
    tmp_path: Path, pretend: Callable[..., Pretending]
) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    pretend(lambda run: "failed" if run.configuration == FIRST else "finished")
    assert go(store, BenchOptions(workloads=[W], methods=["salsa", "adamw"]))
    found = [(r.run.method, r.run.configuration, r.state) for r in store.results().values() if r.run.seed == 0]
    assert sorted(found) == [("adamw", FIRST, "failed"), ("salsa", FIRST, "failed"), ("salsa", SECOND, "finished")]


def test_what_another_process_trains_is_left_to_it(tmp_path: Path, pretend: Callable[..., Pretending]) -> None:
    store, trained, watcher = BenchStore.create(tmp_path, "smoke"), pretend(), Silent()
    with store.holding(run_of(2)):
        assert not go(store, ONE, watcher=watcher)
    assert trained.asked == [run_of(seed).id for seed in (0, 1, 3, 4)]
    assert any(run_of(2).id in text for text in watcher.said)
    pretend()
    assert go(store, ONE)
    assert len(store.results()) == 5


def test_what_another_process_has_trained_since_is_not_trained_again(
    tmp_path: Path, pretend: Callable[..., Pretending]
) -> None:
    other = Pretending()

    def meanwhile(run: Run) -> State:
        if run.seed == 0:
            BenchStore.open(tmp_path).record([other(None, run_of(1), None, lambda *_: None)])
        return "finished"

    trained = pretend(meanwhile)
    assert go(BenchStore.create(tmp_path, "smoke"), ONE)
    assert [run[-1] for run in trained.asked] == ["0", "2", "3", "4"]


def test_what_follows_from_the_results_of_another_process_is_trained(
    tmp_path: Path, pretend: Callable[..., Pretending]
) -> None:
    other = Pretending()

    def meanwhile(run: Run) -> State:
        if run.configuration == SEARCHED[0]:
            runs = [Run(W, REFERENCE, name, CHOOSING, "smoke") for name in SEARCHED[1:]]
            BenchStore.open(tmp_path).record([other(None, one, None, lambda *_: None) for one in runs])
        return "finished"

    trained = pretend(meanwhile)
    assert go(BenchStore.create(tmp_path, "smoke"), BenchOptions(workloads=[W], methods=[REFERENCE]))
    assert trained.asked[1:] == [Run(W, REFERENCE, SEARCHED[-1], seed).id for seed in range(5)]


def test_in_processes_as_in_this_one(tmp_path: Path) -> None:
    options = BenchOptions(workloads=["logistic_regression"], methods=["adamw"])
    here, there = (BenchStore.create(tmp_path / name, "smoke") for name in ("here", "there"))
    assert go(here, options)
    open_: list[Here] = []

    def elsewhere(setting: Setting) -> Here:
        open_.append(Here(setting, 2))
        return open_[0]

    watcher = Silent()
    assert go(there, options, watcher=watcher, elsewhere=elsewhere)
    with open_[0]:
        pass
    for run, result in here.results().items():
        other = there.results()[run]
        assert result.end is not None
        assert [p._replace(seconds=0) for p in result.points] == [p._replace(seconds=0) for p in other.points]
    assert len(watcher.ended) == 5


class Deadly:
    """A place where every process that tries a run dies. See `hotswap.work.Place`."""

    def room(self) -> int:
        return 1

    def submit(self, payload: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(WorkerDiedError("the process that did it was killed 3 times", "all of it"))
        return future

    def stop(self) -> None: ...


def test_runs_whose_process_died_are_rows(tmp_path: Path) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    assert go(store, ONE, elsewhere=lambda _: Deadly())
    found = store.results().values()
    assert [(result.state, result.reason) for result in found] == [
        ("killed", "the process that did it was killed 3 times")
    ] * 5
    assert all(result.settings == METHODS["adamw"].first.settings for result in found)


def test_a_process_loads_a_data_set_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits, asked = DATASETS["digits"], []

    def counted(*arguments: Any) -> Dataset:
        asked.append(arguments)
        return digits(*arguments)

    def nowhere(*_: Any) -> Dataset:
        raise DataError("not to be had")

    monkeypatch.setattr(registry, "_HANDED_OVER", {})
    monkeypatch.setitem(DATASETS._known, "digits", counted)
    for seed in range(3):
        running._keep_data(run_of(seed))
        WORKLOADS[W]().task(seed, "smoke")
    assert len(asked) == 1
    running._keep_data(replace(run_of(0), workload="recurrent_text"))  # which has none
    monkeypatch.setattr(registry, "_HANDED_OVER", {})
    monkeypatch.setitem(DATASETS._known, "digits", nowhere)
    running._keep_data(run_of(0))
    assert train(run_of(0)).state == "missing"
    said: list[str] = []
    assert load_datasets([W], "smoke", said.append) == {}
    assert "digits is not sent to the nodes, which may have it: not to be had" in said[0]
    sent = replace(digits(None, None), name="digits")
    assert train_run(BenchWork(tmp_path, "cpu", {"digits": sent}), run_of(0), lambda: True) is None  # it was stopped
