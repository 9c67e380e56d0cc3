"""A ledger of the version before is brought to today's layout, whole or not at all."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from hotswap.errors import StudyError
from hotswap.studies import load_study
from hotswap.studies.storage import ledger as ledgers
from hotswap.studies.storage.rows import METRIC_COLUMNS
from hotswap.studies.storage.store import LEDGER, Store
from hotswap.studies.storage.unit_locks import hold
from hotswap.studies.storage.upgrades import SCHEMA
from tests.children import PATIENCE, child

BEFORE = Path(__file__).parents[1] / "data" / "before"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study's folder as the version before left it."""
    return shutil.copytree(BEFORE / "study", tmp_path / "study")


def look(folder: Path, query: str) -> object:
    sql = sqlite3.connect(folder / LEDGER)
    try:
        return sql.execute(query).fetchone()[0]
    finally:
        sql.close()


def test_nothing_is_lost(folder: Path) -> None:
    assert look(folder, "PRAGMA user_version") == 1
    provenance = json.loads((BEFORE / "export" / "provenance.json").read_text())
    with Store.open(folder) as store:
        assert store.fingerprint == provenance["fingerprint"] == load_study(BEFORE / "study.toml").fingerprint()
        assert store.provenance() == provenance["units"]
        assert store.marks() == provenance["runs"]
        assert {name: str(kind) for name, kind in store.metrics().dtypes.items()} == METRIC_COLUMNS
        pd.testing.assert_frame_equal(
            store.metrics(), pd.read_parquet(BEFORE / "export" / "metrics.parquet"), check_exact=True
        )
        pd.testing.assert_frame_equal(store.arms(), pd.read_parquet(BEFORE / "export" / "arms.parquet"))
        standing = {unit.id: (unit.state, unit.epochs_done, unit.kept) for unit in store.summary().units}
    assert standing == {
        **{f"{name}-b32": ("done", 8, 0) for name in ("adadelta", "ducb", "sgd")},
        **{f"{name}-b64": ("left", 5, 4) for name in ("adadelta", "ducb", "sgd")},
    }
    assert look(folder, "PRAGMA user_version") == SCHEMA
    with Store.open(folder) as store:  # and once more, now that nothing is left to do
        assert store.marks() == provenance["runs"]


def test_an_upgraded_ledger_is_like_a_new_one(folder: Path, tmp_path: Path) -> None:
    study = load_study(BEFORE / "study.toml")
    Store.open(folder).close()
    Store.create(tmp_path / "new", study, precision="fp32").close()
    layouts = []
    for place in (folder, tmp_path / "new"):
        sql = sqlite3.connect(place / LEDGER)
        tables = [name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        columns = {
            table: sorted((name, kind, key) for _, name, kind, _, _, key in sql.execute(f"PRAGMA table_info({table})"))
            for table in tables
        }
        references = [sql.execute(f"PRAGMA foreign_key_list({table})").fetchall() for table in tables]
        assert sql.execute("PRAGMA foreign_key_check").fetchall() == []
        layouts.append((columns, references))
        sql.close()
    assert layouts[0] == layouts[1]
    with Store.open(folder) as store, pytest.raises(sqlite3.IntegrityError):
        store.write([], [("nobody", 1, 1, 1)])


KILLED = """
import os, signal, sys
from hotswap.studies.storage import upgrades
from hotswap.studies.storage.store import Store
settings, seen = upgrades._settings, []

def deadly(*values):
    seen.append(values)
    if len(seen) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return settings(*values)

upgrades._settings = deadly
Store.open(sys.argv[1])
"""

KILLED_LATER = """
import os, signal, sqlite3, sys
from pathlib import Path
from hotswap.studies.storage import upgrades
sql = sqlite3.connect(Path(sys.argv[1]) / "ledger.sqlite", isolation_level=None)
sql.set_trace_callback(lambda text: "user_version = " in text and os.kill(os.getpid(), signal.SIGKILL))
upgrades.upgrade(sql, Path(sys.argv[1]) / "ledger.sqlite")
"""


@pytest.mark.parametrize("script", [KILLED, KILLED_LATER])
def test_killed_in_the_middle_it_is_still_of_the_version_before(folder: Path, script: str) -> None:
    with child([sys.executable, "-c", script, str(folder)], cwd=ROOT) as process:
        assert process.wait(timeout=PATIENCE) == -9
    assert look(folder, "PRAGMA user_version") == 1
    assert look(folder, "SELECT count(*) FROM runs WHERE lr IS NOT NULL") == 8
    with Store.open(folder) as store:
        assert len(store.metrics()) == 56


RACING = """
import sys
from hotswap.studies.storage.store import Store
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    print(len(store.marks()), flush=True)
"""


def test_two_processes_at_once(folder: Path) -> None:
    command = [sys.executable, "-c", RACING, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
    with child(command, **pipes) as one, child(command, **pipes) as other:
        for process in (one, other):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in (one, other):
            assert process.communicate(timeout=PATIENCE)[0] == "16\n"
            assert process.returncode == 0
    assert look(folder, "PRAGMA user_version") == SCHEMA


def test_while_the_version_before_is_training_it_is_left_alone(folder: Path) -> None:
    before = (folder / LEDGER).read_bytes()
    with (
        hold(folder, "sgd-b64"),
        pytest.raises(StudyError, match=r"earlier hotswap, which is training sgd-b64 into it \(process \d+\); wait"),
    ):
        Store.open(folder)
    assert (folder / LEDGER).read_bytes() == before
    Store.open(folder).close()


def test_a_ledger_with_fingerprints_of_a_later_version_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(folder) as store, store.transaction() as sql:
        sql.execute("UPDATE study SET fingerprint_version = 2")
    with pytest.raises(StudyError, match=r"newer hotswap \(its fingerprints are of version 2.+\); update hotswap\."):
        Store.open(folder)
    monkeypatch.setattr(ledgers, "FINGERPRINT_VERSION", 2)
    Store.open(folder).close()
