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
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotswap.errors import HotSwapError, StudyError
from hotswap.files import replacing, write_text
from hotswap.studies.extras import EXTRA, SINGLES, Extras, digest
from hotswap.studies.families import listed
from hotswap.studies.rows import ARM_COLUMNS, METRIC_COLUMNS, ArmCount, MetricRow
from hotswap.studies.spec import RunSpec, StudySpec
from hotswap.studies.store import Store
from hotswap.studies.tables import is_folder, read_rows, table_paths, unreadable, write_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Origin",
    "export",
    "import_files",
    "origin",
]

_FORMAT = 1
_BELONG = "the files of an export belong together, keep them so"
_RUN_COLUMNS = ("algorithm", "batch_size", "seed", "lr", "lr_decay", "momentum")  # what a run is, not what it measured


@dataclass(frozen=True)
class Origin:
    """The study that an exported table is of: enough to make a folder for it."""

    study: StudySpec
    precision: str
    dtype: str


@dataclass(frozen=True)
class _Export:
    """An exported table with its side files, read and found whole."""

    file: Path
    origin: Origin
    specs: tuple[StudySpec, ...]
    metrics: tuple[dict[str, Any], ...]
    arms: tuple[ArmCount, ...]
    marks: dict[str, dict[str, Any]]
    provenance: dict[str, list[dict[str, Any]]]
    extras: Extras

    def only(self, algorithms: Collection[str] | None, batch_sizes: Collection[int] | None) -> _Export:
        """The part with these; what is None stays whole."""
        if algorithms is None and batch_sizes is None:
            return self
        parts = []
        for spec in self.specs:
            names = [name for name in spec.algorithms if algorithms is None or name in algorithms]
            sizes = [size for size in spec.batch_sizes if batch_sizes is None or size in batch_sizes]
            parts += [spec.select(algorithms=names, batch_sizes=sizes)] if names and sizes else []
        if not parts:
            raise StudyError(
                f"{self.file} has nothing of what was asked for: its algorithms are "
                f"{listed(sorted({name for spec in self.specs for name in spec.algorithms}))}, its batch sizes "
                f"{listed(sorted({size for spec in self.specs for size in spec.batch_sizes}))}."
            )
        units = {f"{name}-b{size}" for spec in parts for name in spec.algorithms for size in spec.batch_sizes}
        return replace(
            self,
            specs=tuple(parts),
            metrics=tuple(row for row in self.metrics if _unit_of(row["run"]) in units),
            arms=tuple(count for count in self.arms if _unit_of(count[0]) in units),
            marks={run: mark for run, mark in self.marks.items() if _unit_of(run) in units},
            provenance={unit: finishes for unit, finishes in self.provenance.items() if _unit_of(unit) in units},
        )


def _unit_of(name: str) -> str:
    """The algorithm and the batch size, with which the names of runs and units begin: `sgd-b64`."""
    return "-".join(name.split("-")[:2])


def export(store: Store, file: Path | str) -> tuple[Path, ...]:
    """Write the ledger's tables, and return where: metrics, arms, timings if there are any, then provenance.

    Each file is whole or not there.

    Raises:
        StudyError: The file's ending is neither `.parquet` nor `.csv` nor none, or it cannot be written.
    """
    metrics, arms, provenance = paths = table_paths(Path(file))
    extras = Extras.of(store.folder) if is_folder(Path(file)) else Extras()
    with store.transaction():  # all of one moment, whoever else is recording
        frames = (store.metrics(), store.arms())
        document = {
            "format": _FORMAT,
            "study": store.study.to_dict(),
            "specs": [spec.to_dict() for spec in store.specs()],
            "fingerprint": store.fingerprint,
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


def origin(file: Path | str) -> Origin:
    """Read which study an exported table is of.

    Raises:
        StudyError: Its provenance is missing or unreadable.
    """
    return _origin(Path(file), _document(Path(file)))


def import_files(
    store: Store,
    files: Iterable[Path | str],
    *,
    algorithms: Collection[str] | None = None,
    batch_sizes: Collection[int] | None = None,
) -> int:
    """Merge exported tables into a study, or nothing if anything contradicts; return how many rows are new.

    The study grows by what the tables' own study covers beyond it, or by the part of it with these algorithms and
    batch sizes. Where the same run and epoch is there already, all but `seconds` must be equal, and what is there
    stays. Timings of single runs come along with a folder.

    Raises:
        StudyError: A file is missing, unreadable or not as it was written; it is of another study or precision; it has
            a run that is not in the study, or another value for the same run and epoch.
    """
    exports = [_load(Path(file)).only(algorithms, batch_sizes) for file in files]
    known = [Extras.of(store.folder)]
    for item in exports:
        for extras in known:
            item.extras.check(extras)
        known.append(item.extras)
    with store.transaction():
        added = sum(_merge(store, item) for item in exports)
    for item in exports:
        item.extras.copy_to(store.folder)
    return added


# Merging.


def _merge(store: Store, item: _Export) -> int:
    with _named(item.file):
        store.check(item.origin.study, precision=item.origin.precision, dtype=item.origin.dtype)
    for spec in item.specs:
        store.extend(spec, asked=False)
    runs = {run.id: run for spec in store.specs() for run in spec.runs()}
    for row in item.metrics:
        _check_run(row, runs, item.file)
    known = {(row["run"], row["epoch"]): row for row in _records(store.metrics())}
    new = [row for row in item.metrics if (row["run"], row["epoch"]) not in known]
    for row in item.metrics:
        _check_same(row, known.get((row["run"], row["epoch"]), row), item.file)
    _check_arms(_by_epoch(item.arms), _by_epoch(store.arms().itertuples(index=False, name=None)), known.keys(), item)
    fresh = {(row["run"], row["epoch"]) for row in new}
    names = MetricRow.__dataclass_fields__
    store.write(
        [MetricRow(**{name: row[name] for name in names}) for row in new],
        [count for count in item.arms if count[:2] in fresh],
    )
    with _named(item.file):
        store.mark(item.marks)
    for unit, finishes in item.provenance.items():
        for finish in finishes:
            store.add_provenance(unit, finish)
    return len(new)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Say which file it was that the store refused."""
    try:
        yield
    except StudyError as error:
        raise StudyError(f"{file} cannot be imported: {error}") from error


def _check_run(row: Mapping[str, Any], runs: Mapping[str, RunSpec], file: Path) -> None:
    run = runs.get(row["run"])
    if run is None:
        raise StudyError(f"{file} has the run {row['run']}, which is not in the study; nothing was imported.")
    for name in _RUN_COLUMNS:
        expected = getattr(run, name)
        if not _equal(row[name], float("nan") if expected is None else expected):
            raise StudyError(
                f"{file} says that {name} of the run {run.id} is {row[name]}, but it is {expected} in the study; "
                "nothing was imported."
            )


def _check_same(row: Mapping[str, Any], known: Mapping[str, Any], file: Path) -> None:
    for name in METRIC_COLUMNS:
        if name != "seconds" and not _equal(row[name], known[name]):
            raise StudyError(
                f"{file} has {name} {row[name]} for the run {row['run']} at epoch {row['epoch']}, but the study has "
                f"{known[name]}; nothing was imported."
            )


_Counts = dict[tuple[str, int], dict[int, int]]


def _check_arms(theirs: _Counts, ours: _Counts, known: Iterable[Hashable], item: _Export) -> None:
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


# Reading. Nothing in a file is trusted: tables give numbers and names of known columns, the provenance plain JSON.


def _load(file: Path) -> _Export:
    metrics, arms, _ = table_paths(file)
    document = _document(file)
    source = _origin(file, document)
    extra = {name: metrics.with_name(f"{name}.parquet") for name in EXTRA if name in document["sha256"]}
    for name, path in {"metrics": metrics, "arms": arms, **extra}.items():
        if not path.is_file():
            raise StudyError(f"{path} is missing; {_BELONG}.")
        if digest(path) != document["sha256"].get(name):
            raise StudyError(f"{path} is not as it was when {table_paths(file)[2].name} was written; export it again.")
    rows = read_rows(metrics, METRIC_COLUMNS)
    if len({(row["run"], row["epoch"]) for row in rows}) < len(rows):
        raise StudyError(f"{file} has two rows for the same run and epoch; export it again.")
    counts = [(row["run"], row["epoch"], row["arm"], row["count"]) for row in read_rows(arms, ARM_COLUMNS)]
    try:
        specs = tuple(StudySpec.from_dict(spec) for spec in document["specs"])
    except (HotSwapError, TypeError, ValueError) as error:
        raise unreadable(table_paths(file)[2], error) from error
    extras = Extras(extra, document.get(SINGLES) if "curves" in extra else None)
    return _Export(file, source, specs, tuple(rows), tuple(counts), document["runs"], document["units"], extras)


def _document(file: Path) -> dict[str, Any]:
    """Read the provenance beside a table, and check that everything is there and of the right kind."""
    path = table_paths(file)[2]
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StudyError(f"{path} is missing; {_BELONG}.") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise StudyError(f"{path} is not a provenance that this hotswap knows; export it again, or update hotswap.")
    kinds = {"study": dict, "specs": list, "units": dict, "runs": dict, "sha256": dict}
    for key, kind in {**kinds, "fingerprint": str, "precision": str, "dtype": str}.items():
        if not isinstance(document.get(key), kind):
            raise unreadable(path, f"{key} is missing")
    if not all(_is_mark(mark) for mark in document["runs"].values()):
        raise unreadable(path, "runs has something else than numbers")
    if not all(
        isinstance(item, list) and all(isinstance(x, dict) for x in item) for item in document["units"].values()
    ):
        raise unreadable(path, "units has something else than lists of what finished them")
    return document


def _is_mark(mark: object) -> bool:
    whole = ("epoch", "finished")
    return (
        isinstance(mark, dict)
        and all(isinstance(mark.get(name), int) for name in whole)
        and isinstance(mark.get("seconds"), int | float)
        and isinstance(mark.get("diverged"), int | None)
    )


def _origin(file: Path, document: Mapping[str, Any]) -> Origin:
    try:
        study = StudySpec.from_dict(document["study"])
    except (HotSwapError, TypeError, ValueError) as error:
        raise unreadable(table_paths(file)[2], error) from error
    if study.fingerprint() != document["fingerprint"]:
        raise unreadable(table_paths(file)[2], "its fingerprint is not that of its study")
    return Origin(study, document["precision"], document["dtype"])


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = frame.to_dict("records")
    return records
