"""The ledger of a benchmark: one SQLite file that outlives the processes that fill it.

    DIR/ledger.sqlite       every run that was trained, or why it was not
    DIR/units/RUN.lock      held by the process that has a run trained, let go by the system when that process ends

A run is stored when it has ended, in one transaction. Whoever is killed before that leaves no trace of it.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from hotswap.bench.methods import METHODS
from hotswap.bench.runs import Point, Result, Run
from hotswap.bench.workloads import SIZES, WORKLOADS, Size
from hotswap.errors import SettingError, StudyError
from hotswap.names import check_named
from hotswap.studies.storage.command import without_folders
from hotswap.studies.storage.ledger import BENCHMARK, PATIENCE, creating, explained, opened
from hotswap.studies.storage.locks import acquire, release
from hotswap.studies.storage.store import LEDGER
from hotswap.studies.storage.unit_locks import WAITING, hold, is_trained, trainer, whereabouts

__all__ = ["BenchStore", "of_today"]

_TABLES = """
CREATE TABLE bench (size TEXT NOT NULL);
CREATE TABLE runs (id TEXT PRIMARY KEY, workload TEXT NOT NULL, method TEXT NOT NULL, configuration TEXT NOT NULL,
    seed INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, budget INTEGER NOT NULL,
    version INTEGER NOT NULL, settings TEXT NOT NULL, origin TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE points (run TEXT NOT NULL REFERENCES runs, percent INTEGER NOT NULL, cost REAL NOT NULL,
    steps INTEGER NOT NULL, seconds REAL NOT NULL, train REAL, validation REAL, PRIMARY KEY (run, percent))
    WITHOUT ROWID;
"""
_RUN = "id, workload, method, configuration, seed, state, reason, budget, version, settings, origin, digest"
_POINT = "percent, cost, steps, seconds, train, validation"


def _refuse_tables(folder: Path) -> None:
    if (folder / "runs.parquet").is_file():
        raise StudyError(f"{folder} holds exported tables; `hotswap bench import DIR {folder}` puts them into DIR.")


class BenchStore:
    """One benchmark's folder, open."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder, self._sql = folder, connection
        stored = connection.execute("SELECT size FROM bench").fetchone()
        if stored is None or stored[0] not in SIZES:
            raise StudyError(f"{folder / LEDGER} does not say of which size its benchmark is; choose another folder.")
        self.size: Size = stored[0]

    @classmethod
    def create(cls, folder: Path, size: Size) -> Self:
        """Open a folder, making it where need be.

        Raises:
            StudyError: It holds a benchmark of another size, exported tables, or something else.
        """
        with explained(folder):
            if not (folder / LEDGER).is_file():
                _refuse_tables(folder)
            lock = acquire(folder / "units" / ".create.lock", PATIENCE)
            if lock is None:
                raise StudyError(f"Another process has been setting up {folder} for {PATIENCE:.0f} s; try again.")
            try:
                if not (folder / LEDGER).exists():
                    with creating(folder / LEDGER, BENCHMARK, _TABLES) as sql:
                        sql.execute("INSERT INTO bench VALUES (?)", (size,))
            finally:
                release(lock)
        store = cls.open(folder)
        if store.size != size:
            store.close()
            raise StudyError(
                f"{folder} holds a benchmark of size {store.size}, not {size}; choose another folder, or that size."
            )
        return store

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a folder that holds a benchmark.

        Raises:
            StudyError: It holds none, or a ledger that is damaged or newer than this program.
        """
        with explained(folder):
            if not (folder / LEDGER).is_file():
                _refuse_tables(folder)
                raise StudyError(f"{folder} holds no benchmark; `hotswap bench run` starts one.")
            return cls(folder, opened(folder / LEDGER, BENCHMARK))

    def close(self) -> None:
        """Let go of the ledger."""
        self._sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def holding(self, run: Run) -> Iterator[Callable[[str], None]]:
        """Have a run for oneself; the function says where it is trained, if that is not in this process.

        Raises:
            UnitTaken: Another process has it.
        """
        with hold(self.folder, run.id) as annotate:
            yield annotate

    def running(self, run: Run) -> str | None:
        """Where a run is being trained; None if it is not, or if a cluster has no room for it yet."""
        if not is_trained(self.folder, run.id):
            return None
        where = whereabouts(self.folder, run.id)
        return None if where == WAITING else where or f"process {trainer(self.folder, run.id)}"

    def record(self, results: Iterable[Result]) -> None:
        """Store what came of runs, in the place of what was stored of them before; all of it, or nothing."""
        with explained(self.folder), self._sql:
            self._sql.execute("BEGIN IMMEDIATE")
            for result in results:
                self._write(result)

    def _write(self, result: Result) -> None:
        run, origin = result.run, dict(result.origin)
        if isinstance(origin.get("command"), str):
            origin["command"] = without_folders(origin["command"])
        row = (run.id, run.workload, run.method, run.configuration, run.seed, result.state, result.reason)
        texts = (json.dumps(dict(result.settings), sort_keys=True), json.dumps(origin, sort_keys=True))
        self._sql.execute("DELETE FROM points WHERE run = ?", (run.id,))
        self._sql.execute(
            f"INSERT OR REPLACE INTO runs ({_RUN}) VALUES ({', '.join('?' * 12)})",
            (*row, result.budget, result.version, *texts, result.digest()),
        )
        self._sql.executemany(
            f"INSERT INTO points (run, {_POINT}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(run.id, *point) for point in result.points],  # NaN becomes NULL in SQLite
        )

    def results(self) -> dict[str, Result]:
        """What is known of each run, by its id. What is not as it was stored, or is of the past, says so.

        Raises:
            StudyError: The ledger is damaged, or has a name that cannot be one.
        """
        with explained(self.folder):
            points: dict[str, list[Point]] = {}
            for run, *values in self._sql.execute(f"SELECT run, {_POINT} FROM points ORDER BY run, percent"):
                known: list[Any] = [math.nan if value is None else value for value in values]
                points.setdefault(run, []).append(Point(*known))
            rows = self._sql.execute(f"SELECT {_RUN} FROM runs ORDER BY rowid").fetchall()
        names = {name: [row[at] for row in rows] for at, name in enumerate(("workload", "method", "configuration"), 1)}
        check_named(names, f"{self.folder / LEDGER}, runs")
        found = (self._result(row, tuple(points.get(row[0], ()))) for row in rows)
        return {result.run.id: result for result in found}

    def _result(self, row: tuple[Any, ...], points: tuple[Point, ...]) -> Result:
        _, workload, method, configuration, seed, state, reason, budget, version, settings, origin, digest = row
        run = Run(workload, method, configuration, seed, self.size)
        try:
            result = Result(run, state, reason, points, budget, version, json.loads(settings), json.loads(origin))
            sound = result.digest() == digest
        except (ValueError, TypeError):
            result, sound = Result(run, "damaged"), False
        if not sound:
            told = "What the ledger has of it is not what was stored; it is trained again with the next run."
            return replace(result, state="damaged", reason=told, points=())
        return of_today(result)


def of_today(result: Result) -> Result:
    """The result, or a row that says that it is of the past."""
    if is_current(result):
        return result
    told = "The workload, the method or its package has changed since; it is trained again with the next run."
    return replace(result, state="outdated", reason=told, points=())


def is_current(result: Result) -> bool:
    """Whether a result is of the workload, the method, its settings and its package's version of today."""
    run, origin = result.run, result.origin
    if run.workload not in WORKLOADS or run.method not in METHODS:
        return True  # somebody's own; there is nothing to compare with
    method = METHODS[run.method]()
    try:
        settings = method.configuration(run.configuration).settings
    except (KeyError, SettingError):
        return False
    package, wanted = method.package or ("", "")
    return (
        result.version == WORKLOADS[run.workload].version
        and dict(result.settings) == dict(settings)
        and origin.get("method_version", 1) == method.version
        and origin.get(package, wanted) == wanted
    )
