"""The ledger gives back what was stored, and says so where it cannot."""

from __future__ import annotations

import math
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from hotswap.bench.methods import METHODS
from hotswap.bench.runs import PERCENTS, Result, troubles
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.errors import StudyError, UnitTaken
from hotswap.report import load_results
from hotswap.studies.storage.ledger import _mode
from hotswap.studies.storage.locks import acquire, release
from tests.bench.helpers import made

W = "paper_network"


def change(folder: Path, query: str) -> None:
    sql = sqlite3.connect(folder / "ledger.sqlite")
    with sql:
        sql.execute(query)
    sql.close()


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    fine = made(W, "sgd", command="hotswap bench run --out /home/me/x", device="CPU")
    lost = made(W, "adamw", curve=[*[1.0] * (len(PERCENTS) - 1), math.inf])
    nothing = made(W, "dog", state="missing")
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([fine, lost, replace(nothing, points=())])
    with BenchStore.open(tmp_path) as store:
        found = store.results()
    assert store.size == "smoke"
    assert list(found) == [fine.run.id, lost.run.id, nothing.run.id]
    assert found[fine.run.id] == replace(fine, origin={"command": "hotswap bench run --out x", "device": "CPU"})
    assert found[lost.run.id].points[-1].validation == math.inf
    assert found[nothing.run.id].reason == "It has missing."
    assert Result.of(fine.plain()) == fine


def test_a_later_result_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made(W, "sgd", end=0.5)])
        store.record([made(W, "sgd", state="failed")])
        (found,) = store.results().values()
    assert (found.state, len(found.points)) == ("failed", 3)


def test_not_finite_numbers_come_back(tmp_path: Path) -> None:
    lost = made(W, "adamw", curve=[*[1.0] * (len(PERCENTS) - 1), math.nan])
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([lost])
        (found,) = store.results().values()
    assert found.state == "finished"  # as it was stored: it is not damaged
    assert math.isnan(found.points[-1].validation)
    assert found.end is None


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE points SET validation = 0.01 WHERE percent = 100",
        "DELETE FROM points WHERE percent = 50",
        "UPDATE runs SET settings = '{'",
        "UPDATE runs SET state = 'finished', seed = 1",
    ],
)
def test_a_damaged_result_is_a_row_that_says_so(tmp_path: Path, harm: str) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made(W, "sgd"), made(W, "adamw", state="diverged")])
    change(
        tmp_path, f"{harm}{' AND' if 'WHERE' in harm else ' WHERE'} {'run' if 'points' in harm else 'id'} LIKE '%sgd%'"
    )
    with BenchStore.open(tmp_path) as store:
        found = {result.run.method: result for result in store.results().values()}
    assert (found["sgd"].state, found["sgd"].points) == ("damaged", ())
    assert found["adamw"].state == "diverged"
    assert any("paper_network, sgd (default)" in line and "damaged" in line for line in troubles(found.values()))


def test_reasons_that_differ_in_numbers_alone_are_one_sentence() -> None:
    losses = {2: -0.5, 0: -1e-05, 1: -0.25}
    ended = [
        replace(made(W, "sgd", seed, state="failed"), reason=f"The loss is {loss:g}.") for seed, loss in losses.items()
    ]
    alike = "The loss is -1e-05. (So says seed 0; the others differ in numbers alone.)"
    assert troubles(ended) == [f"{W}, sgd (default), seeds 0, 1, 2: failed. {alike}"]
    raised = [replace(one, reason=f"KeyError: 3 (a.py, line {12 * one.run.seed + 5})") for one in ended]
    assert len(troubles(raised)) == 3
    other = replace(ended[0], reason="The weights are not finite.")
    assert [line.split(": ")[0] for line in troubles([other, *ended[1:]])] == [
        f"{W}, sgd (default), seeds 0, 1",
        f"{W}, sgd (default), seed 2",
    ]


def test_results_of_another_version_are_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made(W, "sgd"), replace(made(W, "adamw"), settings={"lr": 5})])
        assert [result.state for result in store.results().values()] == ["finished", "outdated"]
        monkeypatch.setattr(WORKLOADS[W], "version", 99)
        assert [result.state for result in store.results().values()] == ["outdated", "outdated"]


def test_results_of_another_method_or_package_are_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, version = METHODS["prodigy"].package or ("", "")
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made(W, "prodigy", 0, **{name: "0.9"}), made(W, "prodigy", 1, **{name: version})])
        store.record([made(W, "prodigy", 2), made(W, "prodigy", 3, method_version=2)])  # early ones do not say
        states = [result.state for result in store.results().values()]
        assert states == ["outdated", "finished", "finished", "outdated"]
        monkeypatch.setattr(METHODS["prodigy"], "version", 2)
        assert [result.state for result in store.results().values()][1:] == ["outdated", "outdated", "finished"]


def test_a_folder_holds_one_size_of_a_benchmark(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="holds no benchmark; `hotswap bench run` starts one"):
        BenchStore.open(tmp_path)
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "runs.parquet").touch()
    for opening in (BenchStore.open, lambda folder: BenchStore.create(folder, "smoke")):
        with pytest.raises(StudyError, match="exported holds exported tables; `hotswap bench import DIR"):
            opening(tmp_path / "exported")
        with pytest.raises(StudyError, match=r"cannot be read or written \(File name too long\)"):
            opening(tmp_path / (300 * "x"))
    BenchStore.create(tmp_path, "smoke").close()
    with pytest.raises(StudyError, match="holds a benchmark of size smoke, not full"):
        BenchStore.create(tmp_path, "full")
    (tmp_path / "ledger.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 3000)
    with pytest.raises(StudyError, match="damaged"):
        BenchStore.open(tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    sqlite3.connect(tmp_path / "ledger.sqlite").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(StudyError, match="is not a benchmark's ledger; choose another folder"):
        BenchStore.open(tmp_path)


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    run = made(W, "sgd").run
    with BenchStore.create(tmp_path, "smoke") as store:
        assert not store.running(run)
        lock = acquire(tmp_path / "units" / f"{run.id}.lock", 1.0)
        assert lock is not None
        assert store.running(run)
        with pytest.raises(UnitTaken), store.holding(run):
            pass
        release(lock)
        with store.holding(run):
            assert store.running(run)


def test_a_benchmark_that_cannot_be_written_to_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BenchStore.create(tmp_path, "smoke") as store:
        store.record([made(W, "sgd")])
        known = store.results()
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a disk that is read only; root may write to any folder
    with BenchStore.open(tmp_path) as store:
        assert store.results() == known
        with pytest.raises(StudyError, match="cannot be read or written"):
            store.record([made(W, "adamw")])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["ledger.sqlite"]
    log = tmp_path / "ledger.sqlite-wal"
    log.write_bytes(b"rows of a process that was killed")
    assert _mode(tmp_path / "ledger.sqlite") == "mode=rw"  # what is in it is not left out: SQLite reads it, or says so
    log.write_bytes(b"")
    assert _mode(tmp_path / "ledger.sqlite") == "mode=ro&immutable=1"


def test_it_is_not_taken_for_a_study(tmp_path: Path) -> None:
    BenchStore.create(tmp_path, "smoke").close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StudyError, match=r"holds a benchmark, and no study; `hotswap bench report .*` reports on it"):
        load_results(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
