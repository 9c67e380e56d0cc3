"""The ledger keeps what it was told, whatever happens to the process that told it."""

from __future__ import annotations

import errno
import math
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotswap.errors import SettingError, StudyError, UnitTaken
from hotswap.studies import DucbFamily, NetworkSpec, SgdFamily, StudySpec, Unit, plan
from hotswap.studies.storage import unit_locks
from hotswap.studies.storage.rows import METRIC_COLUMNS, MetricRow
from hotswap.studies.storage.store import Store
from tests.children import PATIENCE, child


def study(**changes: Any) -> StudySpec:
    """Two algorithms, two batch sizes, two seeds: 12 runs in 4 units."""
    settings: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "train_images": 100,
        "network": NetworkSpec(hidden=(4,)),
        "families": (SgdFamily(lr=(0.1, 0.3), lr_decay=(1.0,), momentum=(0.5,)), DucbFamily(count=3)),
        "batch_sizes": (10, 20),
        "seeds": (0, 1),
        "epochs": 10,
    }
    return StudySpec(**{**settings, **changes})


def row(run: str, epoch: int, **changes: Any) -> MetricRow:
    values: dict[str, Any] = {
        **{"train_nll": 0.1 + epoch, "test_error": 1 / 3, "test_nll": 1e-300, "mean_lr": 0.1, "trials": 2.5},
        **{"grad_norm": 5e-324, "steps": 10 * epoch, "seconds": 2.0 * epoch},
    }
    return MetricRow(run, epoch, **{**values, **changes})


def units(spec: StudySpec) -> dict[str, Unit]:
    return {unit.id: unit for unit in plan(spec)}


def complete(store: Store, unit: Unit, epochs: int) -> None:
    store.record(unit, epochs, [row(run.id, epochs) for run in unit.runs])
    store.finish(unit, epochs, {"device": "cpu"})


def in_process(code: str, *arguments: object, **options: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    script = "import sys\nfrom tests.studies.storage.test_store import *\n" + code
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return child(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, **options)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; "
        "import hotswap.studies.storage.store, hotswap.studies.exchange.merge, hotswap.studies.exchange.best_runs"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_floats_come_back_to_the_last_bit(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    rows = [
        row("ducb-b10-s0", 1, train_nll=math.nan, test_nll=math.inf, grad_norm=-math.inf),
        row("ducb-b10-s0", 2, test_error=0.1 + 0.2),
        row("ducb-b10-s1", 1, train_nll=np.float32(0.1), steps=np.int64(7)),
    ]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.record(unit, 2, rows, [("ducb-b10-s0", 1, 2, 9), ("ducb-b10-s0", 1, 0, 1)])
    with Store.open(tmp_path) as store:
        table = store.metrics()
        arms = store.arms()
    assert ", ".join(table.columns) == (
        "run, algorithm, batch_size, seed, lr, lr_decay, momentum, epoch, train_nll, test_error, test_nll, mean_lr, "
        "trials, grad_norm, steps, seconds"
    )
    assert {name: str(kind) for name, kind in table.dtypes.items()} == METRIC_COLUMNS
    assert arms.to_numpy().tolist() == [["ducb-b10-s0", 1, 0, 1], ["ducb-b10-s0", 1, 2, 9]]
    numbers = [field.name for field in fields(MetricRow) if field.name not in ("run", "more")]
    for stored, given in zip(table.to_dict("records"), rows, strict=True):
        np.testing.assert_array_equal(
            [float(stored[name]) for name in numbers], [float(getattr(given, name)) for name in numbers]
        )
    assert table["lr"].isna().all()


def test_settings_of_sgd_are_columns(tmp_path: Path) -> None:
    unit = units(study())["sgd-b20"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.record(unit, 1, [row(run.id, 1) for run in reversed(unit.runs)])
        table = store.metrics()
    assert table["run"].is_monotonic_increasing
    assert table[["algorithm", "batch_size", "seed", "lr", "lr_decay", "momentum"]].to_numpy().tolist() == [
        ["sgd", 20, 0, 0.1, 1.0, 0.5],
        ["sgd", 20, 1, 0.1, 1.0, 0.5],
        ["sgd", 20, 0, 0.3, 1.0, 0.5],
        ["sgd", 20, 1, 0.3, 1.0, 0.5],
    ]


def test_what_else_an_algorithm_measures_comes_back_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DucbFamily, "measures", ("mean_lr", "trials", "width", "drift"))
    unit = units(study())["ducb-b10"]
    more = [{"width": 0.1 + 0.2, "drift": math.nan}, {"width": -math.inf, "drift": np.float32(0.1)}, {"drift": 1e-310}]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.record(unit, 3, [row("ducb-b10-s0", 1 + i, more=values) for i, values in enumerate(more)])
        store.record(units(study())["sgd-b10"], 1, [row(units(study())["sgd-b10"].runs[0].id, 1)])
    with Store.open(tmp_path) as store:
        table = store.metrics()
    assert {name: str(kind) for name, kind in table.dtypes.items()} == METRIC_COLUMNS | {
        "drift": "float64",
        "width": "float64",
    }
    assert list(table.columns) == [*METRIC_COLUMNS, "drift", "width"]
    np.testing.assert_array_equal(table["width"], [0.1 + 0.2, -math.inf, math.nan, math.nan])
    np.testing.assert_array_equal(table["drift"], [math.nan, float(np.float32(0.1)), 1e-310, math.nan])


def test_the_same_run_and_epoch_is_replaced_with_its_arms(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.record(unit, 1, [row("ducb-b10-s0", 1)], [("ducb-b10-s0", 1, 0, 4), ("ducb-b10-s0", 1, 1, 6)])
        store.record(unit, 1, [row("ducb-b10-s0", 1, train_nll=7.0)], [("ducb-b10-s0", 1, 2, 10)])
        assert store.metrics()["train_nll"].tolist() == [7.0]
        assert store.arms().to_numpy().tolist() == [["ducb-b10-s0", 1, 2, 10]]


def test_a_record_is_whole_or_not_at_all(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        twice = [("ducb-b10-s0", 1, 0, 4), ("ducb-b10-s0", 1, 0, 4)]
        with pytest.raises(sqlite3.IntegrityError):
            store.record(unit, 1, [row("ducb-b10-s0", 1)], twice)
        assert len(store.metrics()) == len(store.arms()) == 0
        with pytest.raises(SettingError, match="run ducb-b20-s0 is not in this unit"):
            store.record(unit, 1, [row("ducb-b10-s0", 1), row("ducb-b20-s0", 1)])
        assert len(store.metrics()) == 0


# Which study.


def test_a_folder_is_of_one_study_and_one_precision(tmp_path: Path) -> None:
    Store.create(tmp_path, study(), precision="fp32").close()
    other = study(name="other", network=NetworkSpec(hidden=(5,)))
    names, differ = (
        r"holds the study 'small' \(\w{12}\), not 'other' \(\w{12}\)",
        r"network hidden is \[\d+\], not \[5\]",
    )
    with pytest.raises(StudyError, match=f"{names}: there {differ}; choose another"):
        Store.create(tmp_path, other, precision="fp32")
    with pytest.raises(StudyError, match="computed in fp32 with float32 weights, not in tf32 with float32"):
        Store.create(tmp_path, study(), precision="tf32")
    with pytest.raises(StudyError, match="not in fp32 with float64"):
        Store.create(tmp_path, study(), precision="fp32", dtype="float64")
    with Store.open(tmp_path) as store:
        assert store.study == study()
        assert (store.precision, store.dtype, store.fingerprint) == ("fp32", "float32", study().fingerprint())


def test_more_epochs_extend_it(tmp_path: Path) -> None:
    unit = units(study())["sgd-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        complete(store, unit, 10)
        assert store.finished(unit) == store.epochs == 10
    with Store.create(tmp_path, study(epochs=20), precision="fp32") as store:
        assert store.epochs == store.study.epochs == 20
        assert store.finished(unit) == 10
        (summary,) = [each for each in store.summary().units if each.id == unit.id]
        assert (summary.state, summary.epochs_done, summary.epochs) == ("left", 10, 20)
        assert len(store.metrics()) == len(unit.runs)
        complete(store, unit, 20)
        assert store.finished(unit) == 20
        assert [entry["epochs"] for entry in store.provenance()[unit.id]] == [10, 20]
    with Store.create(tmp_path, study(epochs=10), precision="fp32") as store:
        assert (store.study.epochs, store.epochs) == (10, 20)  # asked for less, and nothing is taken away
        assert store.finished(unit) == 20


def test_more_runs_extend_it(tmp_path: Path) -> None:
    first = study().select(algorithms=["sgd"], batch_sizes=[10], seeds=1)
    (part,) = plan(first)
    whole = units(study())[part.id]
    with Store.create(tmp_path, first, precision="fp32") as store:
        complete(store, part, 10)
        assert sum(unit.runs for unit in store.summary().units) == 2
    with Store.create(tmp_path, study(), precision="fp32") as store:
        assert sum(unit.runs for unit in store.summary().units) == 12
        assert store.finished(part) == 10
        assert store.finished(whole) == 0  # its second seed has not even begun
        complete(store, whole, 10)
        assert [entry["runs"] for entry in store.provenance()[part.id]] == [
            [run.id for run in unit.runs] for unit in (part, whole)
        ]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="holds no study; `hotswap study run` starts one"):
        Store.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match=r"file cannot be read or written \("):
        Store.create(tmp_path / "file", study(), precision="fp32")


@pytest.mark.parametrize("harm", ["text", "zeros", "cut", "empty"])
def test_a_damaged_ledger_is_said_to_be(tmp_path: Path, harm: str) -> None:
    with Store.create(tmp_path, study(), precision="fp32") as store:
        for unit in plan(study()):
            store.record(unit, 300, [row(run.id, epoch) for run in unit.runs for epoch in range(1, 300)])
    ledger = tmp_path / "ledger.sqlite"
    whole = ledger.read_bytes()
    middle = len(whole) // 2
    harmed = {
        "text": b"not a database, whatever its name says" * 100,
        "zeros": whole[: middle - middle % 4096] + bytes(16384) + whole[middle - middle % 4096 + 16384 :],
        "cut": whole[:middle],
        "empty": b"",
    }
    ledger.write_bytes(harmed[harm])
    expected = "is not a study's ledger" if harm == "empty" else r"is damaged \(.+\); put back a copy"
    for attempt in (Store.open, lambda folder: Store.create(folder, study(), precision="fp32")):
        with pytest.raises(StudyError, match=expected):
            attempt(tmp_path)
    assert ledger.read_bytes() == harmed[harm]


def test_a_newer_ledger_and_a_foreign_one(tmp_path: Path) -> None:
    Store.create(tmp_path, study(), precision="fp32").close()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as sql:
        sql.execute("PRAGMA user_version = 99")
    sql.close()
    with pytest.raises(StudyError, match=r"newer hotswap \(its layout is number 99, and this one knows 2\); update"):
        Store.open(tmp_path)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as sql:
        sql.execute("PRAGMA application_id = 1")
    sql.close()
    with pytest.raises(StudyError, match="is not a study's ledger; choose another folder"):
        Store.open(tmp_path)


def test_the_log_of_a_deleted_ledger_is_not_replayed(tmp_path: Path) -> None:
    with Store.create(tmp_path, study(), precision="fp32") as store:
        complete(store, units(study())["ducb-b10"], 10)
        log = (tmp_path / "ledger.sqlite-wal").read_bytes()
    (tmp_path / "ledger.sqlite").unlink()
    assert log
    (tmp_path / "ledger.sqlite-wal").write_bytes(log)
    with Store.create(tmp_path, study(), precision="fp32") as store:
        assert len(store.metrics()) == 0


# The worst moments.

RECORDING = """
unit = units(study())["ducb-b10"]
store = Store.create(sys.argv[1], study(), precision="fp32")
with store.unit_lock(unit):
    for epoch in range(1, 1_000_000):
        rows = [row(run.id, epoch) for run in unit.runs]
        store.record(unit, epoch, rows, [(run.id, epoch, arm, epoch) for run in unit.runs for arm in range(3)])
        print(epoch, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_while_recording(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    for _ in range(3):
        with in_process(RECORDING, tmp_path) as process:
            told = 0
            while told < 20:
                told = int(line(process))
            with Store.open(tmp_path) as store:
                (running,) = [each for each in store.summary().units if each.id == unit.id]
                assert (running.state, running.pid) == ("running", process.pid)
                with pytest.raises(UnitTaken, match=f"ducb-b10 is being trained by process {process.pid}"):
                    store.unit_lock(unit).__enter__()
            process.kill()
            process.wait()
            told = max([told, *map(int, process.communicate()[0].splitlines())])
        with Store.open(tmp_path) as store, store.unit_lock(unit):  # at once
            table = store.metrics()
            last = int(table["epoch"].max())
            assert last in (told, told + 1)  # whatever was said to be recorded is there
            assert table.groupby("epoch").size().tolist() == [2] * last
            assert store.arms().groupby("epoch").size().tolist() == [6] * last
            with store.transaction() as sql:
                sql.execute("DELETE FROM arms")
                sql.execute("DELETE FROM metrics")
        with Store.open(tmp_path) as store:
            assert "running" not in {each.state for each in store.summary().units}


FORKING = """
import os, time
unit = units(study())["ducb-b10"]
with Store.create(sys.argv[1], study(), precision="fp32").unit_lock(unit):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    with in_process(FORKING, tmp_path) as process:
        child = int(line(process))
        try:
            with Store.open(tmp_path) as store:
                with pytest.raises(UnitTaken):
                    store.unit_lock(unit).__enter__()
                process.kill()
                process.wait()
                os.kill(child, 0)  # it lives
                with store.unit_lock(unit):
                    pass
        finally:
            os.kill(child, signal.SIGKILL)


RACING = """
unit = units(study())["ducb-b10"]
print("ready", flush=True)
sys.stdin.readline()
with Store.create(sys.argv[1], study(), precision="fp32") as store:
    try:
        with store.unit_lock(unit):
            print("mine", flush=True)
            sys.stdin.readline()
    except UnitTaken:
        print("taken", flush=True)
"""


def test_one_of_several_gets_the_unit(tmp_path: Path) -> None:
    with ExitStack() as stack:
        start = lambda: stack.enter_context(in_process(RACING, tmp_path / "new", stdin=subprocess.PIPE))  # noqa: E731
        racers = [start() for _ in range(4)]
        assert [line(racer) for racer in racers] == ["ready"] * 4
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        assert sorted(line(racer) for racer in racers) == ["mine", "taken", "taken", "taken"]
        for racer in racers:
            racer.communicate("\n", timeout=PATIENCE)
            assert racer.returncode == 0
    with Store.open(tmp_path / "new") as store, store.unit_lock(units(study())["ducb-b10"]):
        assert len(list((tmp_path / "new").glob(".ledger*"))) == 0


def test_units_of_two_plans_do_not_train_the_same_run(tmp_path: Path) -> None:
    whole = units(study())["sgd-b10"]
    parts = [unit for unit in plan(study(), 2) if unit.id.startswith("sgd-b10")]
    with Store.create(tmp_path, study(), precision="fp32") as one, Store.open(tmp_path) as other:
        with one.unit_lock(whole), pytest.raises(UnitTaken, match=f"process {os.getpid()}"):
            other.unit_lock(parts[1]).__enter__()
        with one.unit_lock(parts[0]), other.unit_lock(parts[1]):
            assert [unit.id for unit in one.summary().units if unit.state == "running"] == [part.id for part in parts]
            with pytest.raises(UnitTaken):
                other.unit_lock(whole).__enter__()
        with other.unit_lock(whole):
            pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_look_at_the_state_takes_no_unit_from_anyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl  # noqa: PLC0415 (not on every system)

    monkeypatch.setattr(unit_locks, "_GLANCE", PATIENCE)  # on a busy machine a look may take its time
    unit = units(study())["ducb-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        with store.unit_lock(unit):
            pass
        look = os.open(tmp_path / "units" / "ducb-b10.lock", os.O_RDONLY)
        fcntl.flock(look, fcntl.LOCK_SH)  # what a look does, only longer
        threading.Timer(0.1, os.close, [look]).start()
        with store.unit_lock(unit):
            pass


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    unit = units(study())["sgd-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.record(unit, 1, [row(run.id, 1) for run in unit.runs])
        (pages,) = store._sql.execute("PRAGMA page_count").fetchone()
        store._sql.execute(f"PRAGMA max_page_count = {pages}")
        many = [row(run.id, epoch) for run in unit.runs for epoch in range(1, 1000)]
        with pytest.raises(StudyError, match=r"is full; nothing stored so far was lost\. Make room and give"):
            store.record(unit, 1000, many)
        assert store.metrics()["epoch"].tolist() == [1] * len(unit.runs)
        assert {each.epochs_done for each in store.summary().units if each.id == unit.id} == {1}
        store._sql.execute("PRAGMA max_page_count = 1000000")
        store.record(unit, 1000, many)
    with Store.open(tmp_path) as store:
        assert len(store.metrics()) == len(many)


def test_a_full_disk_while_the_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", full)
        with pytest.raises(StudyError, match="is full; nothing stored so far was lost"):
            Store.create(tmp_path, study(), precision="fp32")
    assert not (tmp_path / "ledger.sqlite").exists()
    Store.create(tmp_path, study(), precision="fp32").close()


def test_a_mistake_of_ours_is_not_called_a_full_disk(tmp_path: Path) -> None:
    with Store.create(tmp_path, study(), precision="fp32") as store:
        with pytest.raises(sqlite3.OperationalError), store.transaction() as sql:
            sql.execute("SELECT nonsense")
        with pytest.raises(OSError, match="training"), store.unit_lock(units(study())["ducb-b10"]):
            raise OSError("training failed, and that is not the ledger's")


# Where it stands.


def test_finished_needs_the_last_row_of_every_run(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.record(unit, 10, [row("ducb-b10-s0", 10), row("ducb-b10-s1", 9)])
        with pytest.raises(
            StudyError, match="Run ducb-b10-s1 is said to be finished, but has no row at its last epoch"
        ):
            store.finish(unit, 10, {})
        assert store.finished(unit) == 0
        assert store.provenance() == {}


def test_summary(tmp_path: Path) -> None:
    by_id = units(study())
    with Store.create(tmp_path, study(), precision="tf32") as store:
        fresh = store.summary()
        assert (fresh.name, fresh.precision, fresh.seconds, fresh.seconds_left) == ("small", "tf32", 0.0, None)
        store.record(
            by_id["sgd-b10"], 10, [row(run.id, 10) for run in by_id["sgd-b10"].runs]
        )  # 20 s: 0.5 s a run-epoch
        store.finish(by_id["sgd-b10"], 10, {"device": "cpu", "precision": "tf32"})
        store.record(by_id["ducb-b10"], 2, [row(run.id, 2) for run in by_id["ducb-b10"].runs])  # 4 s: 1 s a run-epoch
        store.record(by_id["ducb-b10"], 5, [], seconds=15.0)  # 1.5 s a run-epoch
        store.diverged("ducb-b10-s1", 4)
        store.diverged("ducb-b10-s1", 6)
        with store.unit_lock(by_id["ducb-b10"]):
            summary = store.summary()
        got = {unit.id: unit for unit in summary.units}
        assert {name: (unit.state, unit.epochs_done, unit.runs) for name, unit in got.items()} == {
            "ducb-b10": ("running", 5, 2),
            "ducb-b20": ("left", 0, 2),
            "sgd-b10": ("done", 10, 4),
            "sgd-b20": ("left", 0, 4),
        }
        assert [unit.pid for unit in summary.units] == [os.getpid(), None, None, None]
        assert [unit.diverged for unit in summary.units] == [1, 0, 0, 0]
        assert [unit.seconds for unit in summary.units] == [15.0, 0.0, 20.0, 0.0]
        assert [unit.seconds_left for unit in summary.units] == [15.0, 30.0, 0.0, 20.0]
        assert (summary.seconds, summary.seconds_left) == (35.0, 65.0)
        assert store.marks()["ducb-b10-s1"] == {"epoch": 5, "seconds": 7.5, "finished": 0, "diverged": 4}
        assert store.provenance() == {
            "sgd-b10": [
                {"epochs": 10, "device": "cpu", "precision": "tf32", "runs": [r.id for r in by_id["sgd-b10"].runs]}
            ]
        }


def test_a_unit_taken_up_from_a_checkpoint_stands_there(tmp_path: Path) -> None:
    unit = units(study())["ducb-b10"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        for epoch in (5, 10, 6):
            store.record(unit, epoch, [row(run.id, epoch) for run in unit.runs])
        assert store.summary().units[0].epochs_done == 6


def test_unknown_runs(tmp_path: Path) -> None:
    stranger = units(study(batch_sizes=(30,)))["ducb-b30"]
    with Store.create(tmp_path, study(), precision="fp32") as store:
        for attempt in (lambda: store.finished(stranger), lambda: store.diverged("ducb-b30-s0", 1)):
            with pytest.raises(StudyError, match="Run ducb-b30-s0 is not in the study of"):
                attempt()
        with pytest.raises(StudyError, match="is not in the study of"), store.unit_lock(stranger):
            pass


def test_the_exception_travels_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(UnitTaken("sgd-b64", 12)))
    assert (copy.unit, copy.pid, str(copy)) == ("sgd-b64", 12, "Unit sgd-b64 is being trained by process 12.")
    assert str(UnitTaken("sgd-b64", None)) == "Unit sgd-b64 is being trained by another process."


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("hotswap study run paper --out study", "hotswap study run paper --out study"),
        ("hotswap study run ../mine.toml --out /home/me/x/", "hotswap study run mine.toml --out x"),
        ("hotswap study run paper --out=/home/me/x --seeds=1", "hotswap study run paper --out=x --seeds=1"),
        ("hotswap study run paper --out '/home/me/two words'", "hotswap study run paper --out 'two words'"),
        ("hotswap study run paper --out ..", "hotswap study run paper --out .."),
        ("hotswap study run paper --out 'half", "hotswap study run paper --out 'half"),
    ],
)
def test_what_is_known_of_a_command_does_not_say_where_folders_are(tmp_path: Path, typed: str, kept: str) -> None:
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store.add_provenance("unit", {"command": typed})
        store.add_provenance("unit", {"command": kept})  # as an import of an export would
        assert store.provenance() == {"unit": [{"command": kept}]}


def test_a_study_that_names_what_is_not_registered_says_what_to_load(tmp_path: Path) -> None:
    with Store.create(tmp_path, study(), precision="fp32") as store:
        store._sql.execute("UPDATE specs SET spec = replace(spec, '\"sgd\"', '\"mine\"')")
        with pytest.raises(StudyError, match=r"algorithm is 'mine'.*load the file that registers it: `hotswap --load"):
            store.specs()
        assert store.summary().name == study().name  # where it stands can be told all the same
        assert "lr" in store.metrics()
