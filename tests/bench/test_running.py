"""A benchmark can be stopped anywhere, and goes on where it was; whatever happens is a row."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.plan import CHOOSING
from hotswap.bench.running import BenchOptions, Here, _Session, run_bench
from hotswap.bench.runs import Point, Result, Run, State
from hotswap.bench.store import BenchStore
from hotswap.bench.training import train
from hotswap.bench.worker import keep_data
from hotswap.bench.workers import Workers
from hotswap.bench.workloads import WORKLOADS
from hotswap.data import DATASETS, Dataset, registry
from hotswap.errors import DataError
from tests.bench.helpers import Pretending, Silent

W = "paper_network"
ALL = BenchOptions(workloads=[W], methods=list(METHODS))
ONE = BenchOptions(workloads=[W], methods=["adamw"])


def test_all_of_it_in_the_order_that_results_allow(tmp_path: Path) -> None:
    trainer, watcher = Pretending(jobs=3), Silent()
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, ALL, trainer, watcher)
        found = store.results()
    assert len(trainer.asked) == len(set(trainer.asked)) == len(found) == 20 + 5 * len(METHODS)
    best = Run(W, REFERENCE, SEARCHED[-1], 0).id  # the pretended best
    searched = {Run(W, REFERENCE, name, CHOOSING).id for name in SEARCHED}
    assert searched < set(trainer.asked[: trainer.asked.index(best)])
    assert watcher.plans[-1] == (len(found), len(found))
    assert len(watcher.ended) == len(found)
    assert watcher.points > 0
    assert all({"command", "date"} <= set(result.origin) for result in found.values())


def test_stopped_and_gone_on(tmp_path: Path) -> None:
    first, second = Pretending(), Pretending()
    with BenchStore.create(tmp_path, "smoke") as store:
        assert not run_bench(store, ALL, first, Silent(), lambda: len(first.asked) >= 7)
        assert len(store.results()) == 7
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, ALL, second, Silent())
        assert not set(first.asked) & set(second.asked)
        assert run_bench(store, ALL, Pretending(fate=lambda _: pytest.fail("nothing is left")), Silent())


def test_no_run_begins_after_the_time(tmp_path: Path) -> None:
    trainer = Pretending()
    with BenchStore.create(tmp_path, "smoke") as store:
        late = BenchOptions(workloads=[W], methods=["adamw"], stop_after=0.0)
        assert not run_bench(store, late, trainer, Silent())
    assert trainer.asked == []


@pytest.mark.parametrize(
    ("state", "again", "when_asked"),
    [("finished", 0, 0), ("diverged", 0, 0), ("failed", 0, 5), ("missing", 5, 5), ("killed", 5, 5)],
)
def test_what_another_try_may_change_is_tried_again_once(
    tmp_path: Path, state: State, again: int, when_asked: int
) -> None:
    retry = BenchOptions(workloads=[W], methods=["adamw"], retry_failed=True)
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, ONE, Pretending(fate=lambda _: state), Silent())
        assert {result.state for result in store.results().values()} == {state}
        for options, expected in ((ONE, again), (retry, when_asked)):
            trainer = Pretending(fate=lambda _: state)
            run_bench(store, options, trainer, Silent())
            assert len(trainer.asked) == expected


def test_what_is_damaged_or_of_the_past_is_trained_anew(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, ONE, Pretending(), Silent())
        with store._sql as sql:
            sql.execute("UPDATE points SET validation = 0 WHERE run = ?", (Run(W, "adamw", FIRST, 1).id,))
        old = store.results()[Run(W, "adamw", FIRST, 2).id]
        store.record([replace(old, version=old.version - 1)])
        states = [store.results()[Run(W, "adamw", FIRST, seed).id].state for seed in range(5)]
        assert states == ["finished", "damaged", "outdated", "finished", "finished"]
        trainer = Pretending()
        assert run_bench(store, ONE, trainer, Silent())
        assert trainer.asked == [Run(W, "adamw", FIRST, seed).id for seed in (1, 2)]
        assert {result.state for result in store.results().values()} == {"finished"}


def test_a_method_that_fails_has_both_its_configurations_shown(tmp_path: Path) -> None:
    def fate(run: Run) -> State:
        return "failed" if run.configuration == FIRST else "finished"

    options = BenchOptions(workloads=[W], methods=["salsa", "adamw"])
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, options, Pretending(fate=fate), Silent())
        found = [(r.run.method, r.run.configuration, r.state) for r in store.results().values() if r.run.seed == 0]
    assert sorted(found) == [
        ("adamw", FIRST, "failed"),
        ("salsa", FIRST, "failed"),
        ("salsa", SECOND, "finished"),
    ]


def test_what_another_process_trains_is_left_to_it(tmp_path: Path) -> None:
    run, trainer, watcher = Run(W, "adamw", FIRST, 2, "smoke"), Pretending(), Silent()
    with BenchStore.create(tmp_path, "smoke") as store:
        with store.holding(run):
            assert not run_bench(store, ONE, trainer, watcher)
        assert len(trainer.asked) == 4
        assert run.id not in trainer.asked
        assert any(run.id in text for text in watcher.said)
        assert watcher.plans[0] == (0, 5)
        assert watcher.plans[-1] == (4, 5)  # the one that another has is not done
        assert run_bench(store, ONE, Pretending(), Silent())


def test_what_another_process_has_trained_since_is_not_trained_again(tmp_path: Path) -> None:
    class Meanwhile(Pretending):
        """While it trains the first run, somebody else trains the second."""

        def train(self, run: Run, watch: Callable[[Point], None]) -> Result:
            if not self.asked:
                with BenchStore.open(tmp_path) as other:
                    other.record([Pretending().train(replace(run, seed=1), lambda _: None)])
            return super().train(run, watch)

    trainer = Meanwhile()
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, ONE, trainer, Silent())
    assert [run[-1] for run in trainer.asked] == ["0", "2", "3", "4"]
    early, late = Pretending(jobs=5), Pretending(jobs=5)
    with BenchStore.create(tmp_path / "planned", "smoke") as store:
        session = _Session(store, ONE, early, Silent())  # which plans all five
        assert run_bench(store, ONE, late, Silent())
        with ThreadPoolExecutor(5) as threads:
            assert not session.goes_on(threads, over=False)
    assert len(late.asked) == 5
    assert early.asked == []


def test_what_follows_from_the_results_of_another_process_is_trained(tmp_path: Path) -> None:
    early, searching = Pretending(), Pretending()
    with BenchStore.create(tmp_path, "smoke") as store:
        session = _Session(store, BenchOptions(workloads=[W], methods=[REFERENCE]), early, Silent())  # plans the search
        for name in SEARCHED:
            store.record([searching.train(Run(W, REFERENCE, name, CHOOSING, "smoke"), lambda _: None)])
        with ThreadPoolExecutor(1) as threads:
            while session.goes_on(threads, over=False):
                pass
    assert early.asked == [Run(W, REFERENCE, SEARCHED[-1], seed).id for seed in range(5)]


def test_what_another_process_has_tried_again_is_not_tried_again(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, ONE, Pretending(fate=lambda _: "failed"), Silent())
        trainer = Pretending(fate=lambda _: "failed")
        session = _Session(store, replace(ONE, retry_failed=True), trainer, Silent())
        found = store.results()[Run(W, "adamw", FIRST, 0).id]
        store.record([replace(found, reason="It has failed again.")])
        with ThreadPoolExecutor(1) as threads:
            while session.goes_on(threads, over=False):
                pass
    assert trainer.asked == [Run(W, "adamw", FIRST, seed).id for seed in range(1, 5)]


def test_a_second_interruption_stops_at_once(tmp_path: Path) -> None:
    trainer = Pretending()

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with BenchStore.create(tmp_path, "smoke") as store, pytest.raises(KeyboardInterrupt):
        run_bench(store, ONE, trainer, Silent(), interrupted)
    assert trainer.stopped


def test_training_in_this_process(tmp_path: Path) -> None:
    options = BenchOptions(workloads=["logistic_regression"], methods=["adamw"])
    with BenchStore.create(tmp_path, "smoke") as store:
        assert run_bench(store, options, Here(), Silent())
        assert all(result.end is not None for result in store.results().values())


def test_processes_train_and_one_that_is_killed_takes_only_its_run_with_it() -> None:
    runs = [Run("logistic_regression", "adamw", FIRST, seed, "smoke") for seed in range(2)]
    with Workers(1) as workers:

        def kill(point: Point) -> None:
            if point.percent == 20:
                process = workers._all[0]._process
                assert process is not None
                os.kill(process.pid, signal.SIGKILL)

        killed = workers.train(runs[0], kill)
        fine = workers.train(runs[1], lambda _: None)
    assert (killed.state, killed.reason) == ("killed", "The process that trained it was ended by SIGKILL.")
    assert [point.percent for point in killed.points][:6] == [0, 1, 2, 5, 10, 20]
    assert killed.end is None
    assert (fine.state, fine.run) == ("finished", runs[1])
    assert fine.end is not None


def test_a_process_loads_a_data_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digits, asked = DATASETS["digits"], []

    def counted(*arguments: Any) -> Dataset:
        asked.append(arguments)
        return digits(*arguments)

    def nowhere(*_: Any) -> Dataset:
        raise DataError("not to be had")

    monkeypatch.setattr(registry, "_HANDED_OVER", {})
    monkeypatch.setitem(DATASETS._known, "digits", counted)
    for seed in range(3):
        run = Run(W, "adamw", FIRST, seed, "smoke")
        keep_data(run)
        WORKLOADS[W]().task(seed, "smoke")
    assert len(asked) == 1
    keep_data(replace(run, workload="recurrent_text"))  # which has none
    monkeypatch.setattr(registry, "_HANDED_OVER", {})
    monkeypatch.setitem(DATASETS._known, "digits", lambda *_: replace(counted(None, None), name="pictures"))
    for _ in range(3):
        keep_data(run)
    assert len(asked) == 2  # it is kept under the name that it is registered by
    monkeypatch.setattr(registry, "_HANDED_OVER", {})
    monkeypatch.setitem(DATASETS._known, "digits", nowhere)
    keep_data(run)
    assert train(run).state == "missing"
    monkeypatch.setitem(DATASETS._known, "digits", lambda *_: {}["nothing"])
    keep_data(run)
    assert train(run).reason.startswith("KeyError: 'nothing'")


def test_a_process_whose_machine_failed_it_trains_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from hotswap.bench.methods import METHODS, Method\n"
        "@METHODS.register('hungry')\n"
        "class Hungry(Method):\n"
        "    title = 'Hungry'\n"
        "    def begin(self, task, settings, seed):\n"
        "        raise torch.OutOfMemoryError('CUDA out of memory')\n"
    )
    with Workers(1, load=[tmp_path / "mine.py"]) as workers:
        first = workers._all[0]
        result = workers.train(Run(W, "hungry", FIRST, 0, "smoke"), lambda _: None)
        assert workers._all != [first]
        assert first._process is not None
        assert first._process.poll() is not None
    assert (result.state, result.reason[:41]) == ("killed", "OutOfMemoryError: CUDA out of memory (min")


def test_a_process_that_cannot_start_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nothing_of_that_name\n")
    with Workers(1, load=[tmp_path / "mine.py"]) as workers:
        result = workers.train(Run(W, "adamw", FIRST, 0, "smoke"), lambda _: None)
    assert result.state == "killed"
    assert "No module named 'nothing_of_that_name'" in result.reason
