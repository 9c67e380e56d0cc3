"""The ledger's file: how it is made, opened and checked, and what is said when it cannot be used."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hotswap.errors import StudyError
from hotswap.files import replacing
from hotswap.names import check_name
from hotswap.studies.specification.study import FINGERPRINT_VERSION, StudySpec
from hotswap.studies.storage.upgrades import RUNS, SCHEMA, upgrade

__all__ = [
    "BENCHMARK",
    "PATIENCE",
    "Kind",
    "check_fingerprint_version",
    "connect",
    "create_ledger",
    "creating",
    "explained",
    "is_benchmark",
    "opened",
]

PATIENCE = 30.0  # seconds to wait for another process's transaction; each takes milliseconds
_TABLES = f"""
CREATE TABLE study (fingerprint TEXT NOT NULL, precision TEXT NOT NULL, dtype TEXT NOT NULL, epochs INTEGER NOT NULL,
    fingerprint_version INTEGER NOT NULL);
CREATE TABLE specs (asked INTEGER PRIMARY KEY, spec TEXT NOT NULL UNIQUE);
{RUNS.format(name="runs")};
CREATE TABLE metrics (run TEXT NOT NULL REFERENCES runs, epoch INTEGER NOT NULL, train_nll REAL, test_error REAL,
    test_nll REAL, mean_lr REAL, trials REAL, grad_norm REAL, steps INTEGER NOT NULL, seconds REAL, more TEXT,
    PRIMARY KEY (run, epoch)) WITHOUT ROWID;
CREATE TABLE arms (run TEXT NOT NULL REFERENCES runs, epoch INTEGER NOT NULL, arm INTEGER NOT NULL,
    count INTEGER NOT NULL, PRIMARY KEY (run, epoch, arm)) WITHOUT ROWID;
CREATE TABLE finishes (unit TEXT NOT NULL, provenance TEXT NOT NULL, UNIQUE (unit, provenance));
"""


class Kind(NamedTuple):
    """What a ledger is of."""

    mark: int
    """In the file's header: a ledger of this kind, not just any SQLite file."""
    schema: int
    """The number of today's layout."""
    owner: str
    """Whose ledger it is, for sentences."""


STUDY = Kind(0x48535750, SCHEMA, "a study")  # "HSWP"
BENCHMARK = Kind(0x48534250, 1, "a benchmark")  # "HSBP"


def create_ledger(ledger: Path, study: StudySpec, precision: str, dtype: str) -> None:
    """Write a new ledger of a study, whole or not at all."""
    with creating(ledger, STUDY, _TABLES) as sql:
        sql.execute(
            "INSERT INTO study (fingerprint, precision, dtype, epochs, fingerprint_version) VALUES (?, ?, ?, ?, ?)",
            (study.fingerprint(), precision, dtype, study.epochs, FINGERPRINT_VERSION),
        )
        sql.execute("INSERT INTO specs (spec) VALUES (?)", (json.dumps(study.to_dict(), sort_keys=True),))


@contextmanager
def creating(ledger: Path, kind: Kind, tables: str) -> Iterator[sqlite3.Connection]:
    """A new ledger with these tables, to write their first rows into; it is there when the block ends well."""
    for ending in ("-wal", "-shm"):  # of a ledger that was deleted: SQLite would replay them into the new one
        ledger.with_name(ledger.name + ending).unlink(missing_ok=True)
    with replacing(ledger) as part:
        sql = sqlite3.connect(part, isolation_level=None)
        try:
            sql.executescript(f"PRAGMA application_id = {kind.mark}; PRAGMA user_version = {kind.schema}; {tables}")
            yield sql
            # Readers do not wait for a writer, nor it for them; the file remembers this, and closing empties the log.
            sql.execute("PRAGMA journal_mode = WAL")
        finally:
            sql.close()


def connect(ledger: Path) -> sqlite3.Connection:
    """Open a study's ledger; one of an earlier version is upgraded."""
    sql = opened(ledger, STUDY)
    try:
        upgrade(sql, ledger)
        _check_names(sql, ledger)
        check_fingerprint_version(sql.execute("SELECT fingerprint_version FROM study").fetchone()[0], ledger)
        sql.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        sql.close()
        raise
    return sql


def _check_names(sql: sqlite3.Connection, ledger: Path) -> None:
    """Check the names in a study's ledger, but for those of its specs, which are checked where these are read."""
    for table, column, what in (
        *(("study", name, name) for name in ("precision", "dtype")),
        *(("runs", name, what) for name, what in (("id", "run"), ("algorithm", "algorithm"), ("unit", "unit"))),
        *(("metrics", "run", "run"), ("arms", "run", "run"), ("finishes", "unit", "unit")),
    ):
        for row, (name,) in enumerate(sql.execute(f"SELECT DISTINCT {column} FROM {table}"), start=1):
            check_name(name, what, f"{ledger}, {table}, row {row} of those that differ in {column}")


def opened(ledger: Path, kind: Kind) -> sqlite3.Connection:
    """Open a ledger that is there, is sound, and is of this kind; to be read only, where its folder is."""
    where = f"{ledger.resolve().as_uri()}?{_mode(ledger)}"
    sql = sqlite3.connect(where, uri=True, timeout=PATIENCE, isolation_level=None)
    try:
        _inspect(sql, ledger, kind)
        # A commit is on the disk when it returns. With NORMAL, a power cut could take back rows that a checkpoint on
        # the disk counts as recorded: they would be missing for good. It costs one fsync an epoch.
        sql.execute("PRAGMA synchronous = FULL")
    except BaseException:
        sql.close()
        raise
    return sql


def _mode(ledger: Path) -> str:
    """How SQLite opens a ledger. In a folder that cannot be written to, it must not look for others who write.

    A log that a killed process left there cannot be read then: SQLite says so, rather than leave out what is in it.
    """
    log = ledger.with_name(f"{ledger.name}-wal")
    archived = not os.access(ledger.parent, os.W_OK) and not (log.exists() and log.stat().st_size)
    return "mode=ro&immutable=1" if archived else "mode=rw"


def is_benchmark(ledger: Path) -> bool:
    """Whether a file is the ledger of a benchmark, and not of a study: by the mark in the header of a SQLite file."""
    try:
        with ledger.open("rb") as file:
            header = file.read(100)
    except OSError:
        return False
    return header[68:72] == BENCHMARK.mark.to_bytes(4, "big")


def _inspect(sql: sqlite3.Connection, ledger: Path, kind: Kind) -> None:
    mark, schema = (sql.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if mark != kind.mark:
        raise StudyError(f"{ledger} is not {kind.owner}'s ledger; choose another folder.")
    if schema > kind.schema:
        raise StudyError(
            f"{ledger} was written by a newer hotswap (its layout is number {schema}, and this one knows "
            f"{kind.schema}); update hotswap."
        )
    (verdict,) = sql.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StudyError(_damaged(ledger.parent, verdict.splitlines()[-1]))


def check_fingerprint_version(version: object, file: Path) -> None:
    """Raise a StudyError if a file's fingerprints were computed by a rule that this version does not know."""
    if version != FINGERPRINT_VERSION:
        raise StudyError(
            f"{file} was written by a newer hotswap (its fingerprints are of version {version}, and this one knows "
            f"{FINGERPRINT_VERSION}); update hotswap."
        )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn what SQLite and the system say about the ledger into a sentence that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind of failure; a mistake of ours, in SQL or in its values, has none of these.
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if kind not in _SENTENCES:
            raise
        raise StudyError(_SENTENCES[kind](folder, str(error))) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        raise StudyError((_full if full else _unusable)(folder, error.strerror or str(error))) from error


def _full(folder: Path, _: str) -> str:
    return (
        f"The disk that holds {folder} is full; nothing stored so far was lost. "
        "Make room and give the same command again: it goes on from what was stored last."
    )


def _damaged(folder: Path, said: str) -> str:
    return (
        f"The ledger of {folder} is damaged ({said}); put back a copy of the folder, or move it away, start anew "
        "and import what was exported."
    )


def _unusable(folder: Path, said: str) -> str:
    return f"{folder} cannot be read or written ({said}); check the folder's permissions and its disk."


def _busy(folder: Path, _: str) -> str:
    return f"Another process has kept the ledger of {folder} busy for {PATIENCE:.0f} s; try again."


_SENTENCES: dict[int, Callable[[Path, str], str]] = {
    **{sqlite3.SQLITE_FULL: _full, sqlite3.SQLITE_BUSY: _busy},
    **{sqlite3.SQLITE_CORRUPT: _damaged, sqlite3.SQLITE_NOTADB: _damaged},
    **dict.fromkeys(
        (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM), _unusable
    ),
}
