"""Ledgers of earlier versions: brought to the layout of today where they lie, in one transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hotswap.errors import StudyError
from hotswap.studies.storage.rows import numbers_to_json
from hotswap.studies.storage.unit_locks import trained_units, trainer

__all__ = ["RUNS", "SCHEMA", "upgrade"]

SCHEMA = 2
"""The number of today's layout: 2 keeps the settings of runs and what else their algorithms measure as JSON."""

RUNS = """CREATE TABLE {name} (id TEXT PRIMARY KEY, algorithm TEXT NOT NULL, batch_size INTEGER NOT NULL,
    seed INTEGER NOT NULL, settings TEXT NOT NULL, unit TEXT NOT NULL, epoch INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0, diverged INTEGER)"""


def upgrade(sql: sqlite3.Connection, ledger: Path) -> None:
    """Bring a ledger to today's layout. A process that is killed meanwhile leaves it as it was.

    Raises:
        StudyError: An earlier version of hotswap is training into it.
    """
    if _schema(sql) >= SCHEMA:
        return
    sql.execute("BEGIN IMMEDIATE")
    try:
        if _schema(sql) < SCHEMA:  # no other process was faster
            _check_idle(ledger)
            _from_1_to_2(sql)
            sql.execute(f"PRAGMA user_version = {SCHEMA}")
        sql.execute("COMMIT")
    except BaseException:
        if sql.in_transaction:
            sql.execute("ROLLBACK")
        raise


def _schema(sql: sqlite3.Connection) -> int:
    return int(sql.execute("PRAGMA user_version").fetchone()[0])


def _check_idle(ledger: Path) -> None:
    """A process of the earlier version could no longer record what it trains."""
    for unit in trained_units(ledger.parent):
        raise StudyError(
            f"{ledger.parent} is of an earlier hotswap, which is training {unit} into it (process "
            f"{trainer(ledger.parent, unit)}); wait for it, or stop it, and try again."
        )


def _from_1_to_2(sql: sqlite3.Connection) -> None:
    sql.execute(RUNS.format(name="upgraded_runs"))
    rest = "id, algorithm, batch_size, seed, unit, epoch, seconds, finished, diverged"
    runs = sql.execute(f"SELECT lr, lr_decay, momentum, {rest} FROM runs ORDER BY rowid").fetchall()
    sql.executemany(
        f"INSERT INTO upgraded_runs (settings, {rest}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(_settings(lr, lr_decay, momentum), *others) for lr, lr_decay, momentum, *others in runs],
    )
    # Copied and renamed rather than altered: older versions of SQLite cannot drop columns.
    sql.execute("DROP TABLE runs")
    sql.execute("ALTER TABLE upgraded_runs RENAME TO runs")
    sql.execute("ALTER TABLE metrics ADD COLUMN more TEXT")
    sql.execute("ALTER TABLE study ADD COLUMN fingerprint_version INTEGER NOT NULL DEFAULT 1")


def _settings(lr: float | None, lr_decay: float | None, momentum: float | None) -> str:
    values = {"lr": lr, "lr_decay": lr_decay, "momentum": momentum}
    return numbers_to_json({name: value for name, value in values.items() if value is not None})
