"""The ledger: what a study has measured so far, in one SQLite file that outlives the processes that fill it.

    DIR/ledger.sqlite       the study, its runs and units, what was recorded, what recorded it
    DIR/units/UNIT.lock     held by the process that trains the unit, let go by the system when that process ends
    DIR/checkpoints/        the weights from which units that are not finished go on

Every change is one transaction, on the disk before the call returns: whoever is killed, whenever, leaves the ledger as
it was after some call. Needs no torch; pandas only to hand out tables.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hotswap.errors import SettingError, StudyError
from hotswap.studies.specification.plan import Unit, plan
from hotswap.studies.specification.stored import check_stored_names, stored_study
from hotswap.studies.specification.study import StudySpec
from hotswap.studies.storage.checkpoint_files import checkpoint_folder, latest_checkpoint
from hotswap.studies.storage.command import without_folders
from hotswap.studies.storage.frames import read_arms, read_metrics
from hotswap.studies.storage.ledger import PATIENCE, connect, create_ledger, explained
from hotswap.studies.storage.locks import acquire, release
from hotswap.studies.storage.rows import ArmCount, MetricRow, metric_columns, numbers_to_json
from hotswap.studies.storage.summary import Summary, UnitSummary, seconds_left
from hotswap.studies.storage.unit_locks import check_free, hold, is_trained, trainer, whereabouts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LEDGER", "Store"]

LEDGER = "ledger.sqlite"

_MARKS = ("epoch", "seconds", "finished", "diverged")
_METRICS = ", ".join(field.name for field in fields(MetricRow))  # the columns of the ledger's table have these names


class Store:
    """One study's folder, open. Made by `Store.create` or `Store.open`, closed by `close` or at the end of a `with`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._sql = connection
        self.fingerprint, self.precision, self.dtype = map(
            str, connection.execute("SELECT fingerprint, precision, dtype FROM study").fetchone()
        )

    @classmethod
    def create(
        cls,
        folder: Path | str,
        study: StudySpec,
        *,
        precision: str,
        dtype: str = "float32",
        max_runs: int | None = None,
    ) -> Self:
        """Open the study's folder, making it where need be.

        A folder that holds the same study grows by what is asked beyond it: epochs, batch sizes, seeds, algorithms.

        Args:
            folder: Where the study lives.
            study: What to run.
            precision: How matrix products are computed, `fp32` or `tf32`.
            dtype: Of the weights.
            max_runs: The most runs of a unit, as for `plan`.

        Raises:
            StudyError: The folder holds another study, or this one computed otherwise.
            SettingError: Two columns of the study's tables would have the same name.
        """
        folder = Path(folder)
        metric_columns([study])  # before there is a folder that holds a study which cannot be
        with explained(folder):
            lock = acquire(folder / "units" / ".create.lock", PATIENCE)
            if lock is None:
                raise StudyError(f"Another process has been setting up {folder} for {PATIENCE:.0f} s; try again.")
            try:
                if not (folder / LEDGER).exists():
                    create_ledger(folder / LEDGER, study, precision, dtype)
            finally:
                release(lock)
        store = cls.open(folder)
        try:
            store.check(study, precision=precision, dtype=dtype)
            store.extend(study, max_runs=max_runs)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder that holds a study.

        Raises:
            StudyError: It holds none, or a ledger that is damaged or newer than this program.
        """
        folder = Path(folder)
        ledger = folder / LEDGER
        if not ledger.is_file():
            raise StudyError(f"{folder} holds no study; `hotswap study run` starts one.")
        with explained(folder):
            return cls(folder, connect(ledger))

    def close(self) -> None:
        """Let go of the ledger."""
        self._sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make all of a block's changes, or none; what it reads is of one moment. Inside another, it is part of it."""
        if self._sql.in_transaction:
            yield self._sql
            return
        with explained(self.folder), self._sql:
            self._sql.execute("BEGIN IMMEDIATE")
            yield self._sql

    def _read(self, query: str, *values: object) -> list[Any]:
        with explained(self.folder):
            return self._sql.execute(query, values).fetchall()

    # What the study is.

    @property
    def study(self) -> StudySpec:
        """The study as it was last asked for. The ledger covers all that was ever asked."""
        return self.specs()[-1]

    def specs(self) -> list[StudySpec]:
        """Return the study in each extent in which it was asked for, the last one last."""
        return [stored_study(table, self.folder) for table in self.stored_specs()]

    def stored_specs(self) -> list[dict[str, Any]]:
        """The same as they were stored, whether or not what they name is registered here."""
        tables = [json.loads(text) for (text,) in self._read("SELECT spec FROM specs ORDER BY asked")]
        for table in tables:
            check_stored_names(table, self.folder)
        return tables

    @property
    def epochs(self) -> int:
        """How many epochs each run is to have: the most that was asked for."""
        return int(self._read("SELECT epochs FROM study")[0][0])

    def check(self, study: StudySpec, *, precision: str, dtype: str) -> None:
        """Raise a StudyError for another study than the folder's, or the same one computed otherwise."""
        if study.fingerprint() != self.fingerprint:
            found = self.study.differences(study)
            differ = (
                f": there {'; '.join(found[:3])}{f'; and {len(found) - 3} more' if found[3:] else ''}" if found else ""
            )
            raise StudyError(
                f"{self.folder} holds the study {self.study.name!r} ({self.fingerprint[:12]}), not {study.name!r} "
                f"({study.fingerprint()[:12]}){differ}; choose another folder."
            )
        if (precision, dtype) != (self.precision, self.dtype):
            raise StudyError(
                f"{self.folder} holds results computed in {self.precision} with {self.dtype} weights, not in "
                f"{precision} with {dtype}; choose another folder, or keep to that."
            )

    def extend(self, study: StudySpec, *, max_runs: int | None = None, asked: bool = True) -> None:
        """Add the runs and epochs of `study`, the same study in another extent; nothing is ever taken away.

        Args:
            study: What is to be covered too.
            max_runs: The most runs of a unit, as for `plan`.
            asked: This is now the study to run; otherwise it only came along with results.

        Raises:
            SettingError: Two columns of the study's tables would have the same name.
        """
        metric_columns([*self.specs(), study])
        spec = json.dumps(study.to_dict(), sort_keys=True)
        with self.transaction() as sql:
            if asked:
                sql.execute("INSERT OR REPLACE INTO specs (spec) VALUES (?)", (spec,))
            else:
                sql.execute("INSERT OR IGNORE INTO specs SELECT min(asked) - 1, ? FROM specs", (spec,))
            sql.execute("UPDATE study SET epochs = max(epochs, ?)", (study.epochs,))
            sql.executemany(
                "INSERT OR IGNORE INTO runs (id, algorithm, batch_size, seed, settings, unit)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (run.id, run.algorithm, run.batch_size, run.seed, numbers_to_json(run.settings), unit.id)
                    for unit in plan(study, max_runs)
                    for run in unit.runs
                ],
            )

    # Who trains what.

    @contextmanager
    def unit_lock(self, unit: Unit) -> Iterator[Callable[[str], None]]:
        """Hold a unit, so that no other process trains it; the system lets go of it however this process ends.

        The block gets a function to say where the unit is trained, if not in this process: `summary` reads it.
        Ask `finished` once the unit is held: another process may just have finished it.

        Raises:
            UnitTaken: Another process holds it, or a unit of another plan that has some of the same runs.
        """
        with ExitStack() as held:
            with explained(self.folder):
                annotate = held.enter_context(hold(self.folder, unit.id))
            self._claim(unit)
            yield annotate

    def _claim(self, unit: Unit) -> None:
        """Note that the runs are now in this unit. Of two units that share a run, the second finds the first's note."""
        with self.transaction() as sql:
            for other in sorted({str(self._run(run.id, "unit")[0]) for run in unit.runs} - {unit.id}):
                check_free(self.folder, other, wanted=unit.id)
            sql.executemany("UPDATE runs SET unit = ? WHERE id = ?", [(unit.id, run.id) for run in unit.runs])

    def _run(self, run: str, columns: str) -> Any:
        for values in self._read(f"SELECT {columns} FROM runs WHERE id = ?", run):
            return values
        raise StudyError(f"Run {run} is not in the study of {self.folder}.")

    # What was measured.

    def record(
        self,
        unit: Unit,
        epoch: int,
        rows: Sequence[MetricRow],
        arm_counts: Sequence[ArmCount] = (),
        *,
        seconds: float | None = None,
    ) -> None:
        """Record what a unit's runs measured, and that the unit has come to `epoch`; what was there is replaced.

        Args:
            unit: Of which unit.
            epoch: How far it has come; less than before where it was taken up again from a checkpoint.
            rows: At most one a run and epoch.
            arm_counts: How often which arm was taken.
            seconds: How long the unit has been trained; the latest of the rows if not given.
        """
        members = [run.id for run in unit.runs]
        strangers = ({row.run for row in rows} | {count[0] for count in arm_counts}).difference(members)
        if strangers:
            raise SettingError(f"Store.record({unit.id}, {epoch}): run {min(strangers)} is not in this unit.")
        with self.transaction() as sql:
            self.write(rows, arm_counts)
            spent = max((float(row.seconds) for row in rows), default=None) if seconds is None else float(seconds)
            share = None if spent is None else spent / len(members)  # each run's, so that units can be planned anew
            sql.executemany(
                "UPDATE runs SET epoch = ?, seconds = coalesce(?, seconds) WHERE id = ?",
                [(int(epoch), share, run) for run in members],
            )

    def write(self, rows: Iterable[MetricRow], arm_counts: Iterable[ArmCount]) -> None:
        """Write rows and counts, whatever unit they are of, in the place of those of the same run and epoch."""
        plain = [row.plain() for row in rows]  # NaN becomes NULL in SQLite, and NaN again on its way out
        counts = [(str(run), int(epoch), int(arm), int(count)) for run, epoch, arm, count in arm_counts]
        with self.transaction() as sql:
            stale = {row[:2] for row in plain} | {count[:2] for count in counts}
            sql.executemany("DELETE FROM arms WHERE run = ? AND epoch = ?", stale)
            sql.executemany(f"INSERT OR REPLACE INTO metrics ({_METRICS}) VALUES ({', '.join('?' * 11)})", plain)
            sql.executemany("INSERT INTO arms VALUES (?, ?, ?, ?)", counts)

    def diverged(self, run: str, epoch: int) -> None:
        """Mark a run as diverged in `epoch`; the earliest mark stays."""
        self.mark({run: {"diverged": int(epoch)}})

    def finish(self, unit: Unit, epochs: int, provenance: Mapping[str, Any]) -> None:
        """Note that a unit is finished for so many epochs, and what did it: versions, device, command, date, duration.

        Raises:
            StudyError: A run of the unit has no row at its last epoch.
        """
        members = [run.id for run in unit.runs]
        with self.transaction():
            self.mark({run: {"epoch": epochs, "finished": epochs} for run in members})
            self.add_provenance(unit.id, {"epochs": epochs, **provenance, "runs": members})

    def finished(self, unit: Unit) -> int:
        """Return for how many epochs every run of a unit is finished, here or elsewhere."""
        return min(int(self._run(run.id, "finished")[0]) for run in unit.runs)

    # Reading it.

    def summary(self) -> Summary:
        """Return where each unit stands, with an estimate of the time it still takes."""
        units = [
            self._unit_summary(*values)
            for values in self._read(
                "SELECT unit, algorithm, batch_size, min(finished), min(epoch), sum(seconds), count(diverged)"
                " FROM runs GROUP BY unit ORDER BY algorithm, batch_size, unit"
            )
        ]
        timed = tuple(replace(unit, seconds_left=seconds_left(unit, units)) for unit in units)
        return Summary(str(self.stored_specs()[-1]["name"]), self.precision, timed)

    def _unit_summary(
        self, name: str, algorithm: str, batch_size: int, finished: int, epoch: int, seconds: float, diverged: int
    ) -> UnitSummary:
        epochs = self.epochs
        runs = [run for (run,) in self._read("SELECT id FROM runs WHERE unit = ?", name)]
        kept = min(latest_checkpoint(checkpoint_folder(self.folder, name, runs)), epochs)
        done = min(max(epoch, kept), epochs)  # a checkpoint may be of an epoch after the last one that was recorded
        unit = UnitSummary(name, algorithm, batch_size, len(runs), done, epochs, seconds, diverged, "left", kept)
        if finished >= epochs:
            return replace(unit, state="done")
        if is_trained(self.folder, name):
            pid, where = trainer(self.folder, name), whereabouts(self.folder, name)
            return replace(unit, state="running", pid=pid, where=where)
        return unit

    def metrics(self) -> pd.DataFrame:
        """Return one row a run and recorded epoch, sorted by run and epoch. See `read_metrics` for the columns."""
        with explained(self.folder):
            return read_metrics(self._sql, self.folder / LEDGER)

    def arms(self) -> pd.DataFrame:
        """Return how often each run took each arm in each recorded epoch, columns as in `ARM_COLUMNS`, sorted."""
        with explained(self.folder):
            return read_arms(self._sql)

    def marks(self) -> dict[str, dict[str, Any]]:
        """Return, by run that was begun, how far it is and for how many epochs finished, when it diverged, its time."""
        begun = self._read("SELECT id, epoch, seconds, finished, diverged FROM runs WHERE epoch > 0 ORDER BY id")
        return {run: dict(zip(_MARKS, marks, strict=True)) for run, *marks in begun}

    def mark(self, marks: Mapping[str, Mapping[str, Any]]) -> None:
        """Add marks such as `marks` returns: the further one counts, and the earliest divergence.

        Raises:
            StudyError: A run is to be marked as finished that has no row at its last epoch.
        """
        with self.transaction() as sql:
            for run, new in marks.items():
                epoch, seconds, finished, diverged = self._run(run, ", ".join(_MARKS))
                if new.get("epoch", -1) >= epoch:
                    epoch, seconds = new["epoch"], new.get("seconds", seconds)
                finished = max(finished, new.get("finished", 0))
                diverged = min((d for d in (diverged, new.get("diverged")) if d is not None), default=None)
                sql.execute(
                    "UPDATE runs SET epoch = ?, seconds = ?, finished = ?, diverged = ? WHERE id = ?",
                    (epoch, seconds, finished, diverged, run),
                )
            for run, last in self._read(
                "SELECT id, finished FROM runs WHERE finished > 0 AND NOT EXISTS"
                " (SELECT 1 FROM metrics WHERE run = runs.id AND metrics.epoch = finished) LIMIT 1"
            ):
                raise StudyError(f"Run {run} is said to be finished, but has no row at its last epoch, {last}.")

    def provenance(self) -> dict[str, list[dict[str, Any]]]:
        """Return by unit what finished which runs of it for how many epochs, in the order in which that was noted."""
        found: dict[str, list[dict[str, Any]]] = {}
        for unit, text in self._read("SELECT unit, provenance FROM finishes ORDER BY unit, rowid"):
            found.setdefault(unit, []).append(json.loads(text))
        return found

    def add_provenance(self, unit: str, provenance: Mapping[str, Any]) -> None:
        """Note what finished a unit, here or elsewhere; once, however often it is noted.

        The command without folders: it goes out with every export, and where things lie on a disk is nobody's business.
        """
        known = dict(provenance)
        if isinstance(known.get("command"), str):
            known["command"] = without_folders(known["command"])
        with self.transaction() as sql:
            text = json.dumps(known, sort_keys=True)
            sql.execute("INSERT OR IGNORE INTO finishes VALUES (?, ?)", (unit, text))
