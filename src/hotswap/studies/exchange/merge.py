"""Tables out of a ledger and into another: units finished on different machines and days become one study.

    FILE                    NAME.parquet or NAME.csv: one row a run and recorded epoch
    NAME.arms.parquet|csv   how often each run took each arm
    NAME.provenance.json    which study, in which precision, what measured it, and the checksums of the tables

or, where FILE is a folder's name, everything that is known of a study:

    FOLDER/metrics.parquet, arms.parquet, provenance.json     the same three
    FOLDER/timing.parquet, curves.parquet                     what `hotswap study timing` measured, where it did

The provenance is written last: whoever finds one whose checksums fit has all files whole and of one moment.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotswap.errors import StudyError
from hotswap.files import replacing, write_text
from hotswap.studies.exchange.exported import FORMAT, Exported, read_exports
from hotswap.studies.exchange.single_runs import SINGLES, Extras, digest, tables_in
from hotswap.studies.exchange.table_files import is_folder, table_paths, write_table
from hotswap.studies.specification.study import FINGERPRINT_VERSION, RunSpec
from hotswap.studies.storage.rows import METRIC_COLUMNS, ArmCount, MetricRow, setting_columns
from hotswap.studies.storage.store import LEDGER, Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["export", "import_files", "import_into"]

_ALL_RUNS_HAVE = [field.name for field in fields(MetricRow) if field.name != "more"]


def export(store: Store, file: Path | str) -> tuple[Path, ...]:
    """Write the ledger's tables, and return where: metrics, arms, timings if there are any, then provenance.

    Each file is whole or not there.

    Raises:
        StudyError: The file's ending is neither `.parquet` nor `.csv` nor none, or it cannot be written.
    """
    metrics, arms, provenance = paths = table_paths(Path(file))
    extras = Extras.of(store.folder) if is_folder(Path(file)) else Extras()
    if is_folder(Path(file)) and (left := tables_in(Path(file)).keys() - extras.tables.keys()):
        raise StudyError(
            f"{file} has {', '.join(sorted(left))} of single runs, which {store.folder} has not, and they would no "
            f"longer belong to what is beside them; import {file} first, or export to another folder."
        )
    other = metrics.with_suffix(".csv" if metrics.suffix == ".parquet" else ".parquet")
    if other.exists() and not is_folder(Path(file)):
        raise StudyError(
            f"{other} is there already, and {provenance.name} would belong to one of the two only; choose another name."
        )
    with store.transaction():  # all of one moment, whoever else is recording
        frames = (store.metrics(), store.arms())
        document = {
            "format": FORMAT,
            "study": store.study.to_dict(),
            "specs": [spec.to_dict() for spec in store.specs()],
            "fingerprint": store.fingerprint,
            "fingerprint_version": FINGERPRINT_VERSION,
            "precision": store.precision,
            "dtype": store.dtype,
            "units": store.provenance(),
            "runs": store.marks(),
        }
    try:
        metrics.parent.mkdir(parents=True, exist_ok=True)
        for path, frame in zip(paths, frames, strict=False):
            with replacing(path) as part:
                write_table(frame, part)
        written = {"metrics": metrics, "arms": arms}
        for name, source in extras.tables.items():
            written[name] = metrics.with_name(source.name)
            with replacing(written[name]) as part:
                part.write_bytes(source.read_bytes())
        document["sha256"] = {name: digest(path) for name, path in written.items()}
        if extras.singles is not None:
            document[SINGLES] = extras.singles
        write_text(provenance, json.dumps(document, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise StudyError(f"{file} cannot be written ({error.strerror}); the study itself is untouched.") from error
    return (*written.values(), provenance)


def import_into(folder: Path, exports: Sequence[Exported]) -> int:
    """Merge what was read into the study in a folder; return how many rows are new.

    Where there is no study yet, one is made of what is imported; for nothing to be left of one that is refused, that is
    tried elsewhere first.

    Raises:
        StudyError: See `import_files`.
    """
    if (folder / LEDGER).exists():
        with Store.open(folder) as store:
            return _import(store, exports)
    first = next((item for item in exports if item.specs), exports[0]).origin
    with tempfile.TemporaryDirectory() as elsewhere:
        for place in (Path(elsewhere), folder):
            with Store.create(place, first.study, precision=first.precision, dtype=first.dtype) as store:
                added = _import(store, exports)
    return added


def import_files(store: Store, files: Iterable[Path | str]) -> int:
    """Merge exported tables into a study, or nothing if anything contradicts; return how many rows are new.

    The study grows by what the tables' own study covers beyond it. Where the same run and epoch is there already, all
    but `seconds` must be equal, and what is there stays. Timings of single runs come along with a folder, all of them.

    Raises:
        StudyError: A file is missing, unreadable or not as it was written; it is of another study or precision; it has
            a run that is not in the study, or another value for the same run and epoch.
    """
    return _import(store, read_exports(files))


# Merging.


def _import(store: Store, exports: Sequence[Exported]) -> int:
    for item in exports:
        with _named(item.file):
            store.check(item.origin.study, precision=item.origin.precision, dtype=item.origin.dtype)
    tables = dict(tables_in(store.folder))
    for item in exports:
        item.extras.check(tables)
        tables |= item.extras.tables
    with store.transaction():
        added = sum(_merge(store, item) for item in exports)
        for item in exports:
            item.extras.copy_to(store.folder)
    return added


def _merge(store: Store, item: Exported) -> int:
    for spec in item.specs:
        store.extend(spec, asked=False)
    specs = store.specs()
    runs = {run.id: run for spec in specs for run in spec.runs()}
    measures = {family.name: family.measures for spec in specs for family in spec.families}
    settings = setting_columns(specs)
    for row in item.metrics:
        _check_run(row, runs, settings, item.file)
    known = {(row["run"], row["epoch"]): row for row in _records(store.metrics())}
    new = [row for row in item.metrics if (row["run"], row["epoch"]) not in known]
    for row in item.metrics:
        _check_same(row, known.get((row["run"], row["epoch"]), row), item.file)
    _check_arms(_by_epoch(item.arms), _by_epoch(store.arms().itertuples(index=False, name=None)), known.keys(), item)
    fresh = {(row["run"], row["epoch"]) for row in new}
    store.write(
        [_row(row, measures[row["algorithm"]]) for row in new],
        [count for count in item.arms if count[:2] in fresh],
    )
    with _named(item.file):
        store.mark(item.marks)
    for unit, finishes in item.provenance.items():
        for finish in finishes:
            store.add_provenance(unit, finish)
    return len(new)


def _row(row: Mapping[str, Any], measures: Iterable[str]) -> MetricRow:
    more = {name: row[name] for name in measures if name in row and name not in METRIC_COLUMNS}
    return MetricRow(**{name: row[name] for name in _ALL_RUNS_HAVE}, more=more)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Say which file it was that the store refused."""
    try:
        yield
    except StudyError as error:
        raise StudyError(f"{file} cannot be imported: {error}") from error


def _check_run(row: Mapping[str, Any], runs: Mapping[str, RunSpec], settings: Iterable[str], file: Path) -> None:
    run = runs.get(row["run"])
    if run is None:
        raise StudyError(f"{file} has the run {row['run']}, which is not in the study; nothing was imported.")
    expected: dict[str, Any] = {"algorithm": run.algorithm, "batch_size": run.batch_size, "seed": run.seed}
    expected |= {name: run.settings.get(name, math.nan) for name in settings if name in row}
    for name, value in expected.items():
        if not _equal(row[name], value):
            raise StudyError(
                f"{file} says that {name} of the run {run.id} is {row[name]}, but it is {value} in the study; "
                "nothing was imported."
            )


def _check_same(row: Mapping[str, Any], known: Mapping[str, Any], file: Path) -> None:
    for name in row:
        ours = known.get(name, math.nan)  # a measure that no run of the study has yet is no column of its table
        if name != "seconds" and not _equal(row[name], ours):
            raise StudyError(
                f"{file} has {name} {row[name]} for the run {row['run']} at epoch {row['epoch']}, but the study has "
                f"{ours}; nothing was imported."
            )


_Counts = dict[tuple[str, int], dict[int, int]]


def _check_arms(theirs: _Counts, ours: _Counts, known: Iterable[Hashable], item: Exported) -> None:
    """Counts belong to rows of the same table; for rows that the study has already, they must be the study's."""
    measured = {(row["run"], row["epoch"]) for row in item.metrics}
    for run, epoch in theirs.keys() - measured:
        raise StudyError(
            f"{item.file} has arm counts, but no metrics, for the run {run} at epoch {epoch}; nothing was imported."
        )
    for run, epoch in measured.intersection(known):
        if theirs.get((run, epoch)) != ours.get((run, epoch)):
            raise StudyError(
                f"{item.file} has other arm counts than the study for the run {run} at epoch {epoch}; "
                "nothing was imported."
            )


def _by_epoch(counts: Iterable[ArmCount]) -> _Counts:
    found: _Counts = {}
    for run, epoch, arm, count in counts:
        found.setdefault((run, epoch), {})[arm] = count
    return found


def _equal(one: Any, other: Any) -> bool:
    """Compare to the last digit: both formats keep every one. NaN equals NaN."""
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 (only NaN differs from itself)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = frame.to_dict("records")
    return records
