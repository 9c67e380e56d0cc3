"""An export, read back: whole, as it was written, and nothing in it trusted.

Tables give numbers and names of known columns, the provenance plain JSON, each checked.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hotswap.errors import StudyError
from hotswap.names import check_name
from hotswap.studies.exchange.single_runs import EXTRA, SINGLES, Extras, digest, is_provenance
from hotswap.studies.exchange.table_files import check_names_in, read_rows, table_paths, unreadable
from hotswap.studies.specification.stored import stored_study
from hotswap.studies.specification.study import StudySpec
from hotswap.studies.storage.ledger import check_fingerprint_version
from hotswap.studies.storage.rows import ARM_COLUMNS, METRIC_COLUMNS, ArmCount, metric_columns

__all__ = ["FORMAT", "Exported", "StudyOrigin", "check_provenance_names", "origin", "read_exports"]

FORMAT = 1
_BELONG = "the files of an export belong together, keep them so"


@dataclass(frozen=True)
class StudyOrigin:
    """The study that an exported table is of: enough to make a folder for it."""

    study: StudySpec
    precision: str
    dtype: str


@dataclass(frozen=True)
class Exported:
    """An exported table with its side files, read and found whole."""

    file: Path
    origin: StudyOrigin
    specs: tuple[StudySpec, ...]
    metrics: tuple[dict[str, Any], ...]
    arms: tuple[ArmCount, ...]
    marks: dict[str, dict[str, Any]]
    provenance: dict[str, list[dict[str, Any]]]
    extras: Extras

    def only(self, algorithms: Collection[str] | None, batch_sizes: Collection[int] | None) -> Exported:
        """The part with these, which may be nothing; what is None stays whole."""
        if algorithms is None and batch_sizes is None:
            return self
        parts = []
        for spec in self.specs:
            names = [name for name in spec.algorithms if algorithms is None or name in algorithms]
            sizes = [size for size in spec.batch_sizes if batch_sizes is None or size in batch_sizes]
            parts += [spec.select(algorithms=names, batch_sizes=sizes)] if names and sizes else []
        units = {f"{name}-b{size}" for spec in parts for name in spec.algorithms for size in spec.batch_sizes}
        return replace(
            self,
            origin=replace(self.origin, study=parts[0]) if parts else self.origin,
            specs=tuple(parts),
            metrics=tuple(row for row in self.metrics if _unit_of(row["run"]) in units),
            arms=tuple(count for count in self.arms if _unit_of(count[0]) in units),
            marks={run: mark for run, mark in self.marks.items() if _unit_of(run) in units},
            provenance={unit: finishes for unit, finishes in self.provenance.items() if _trained(finishes) & units},
        )


def _trained(finishes: list[dict[str, Any]]) -> set[str]:
    """The algorithms and batch sizes of the runs that were finished."""
    return {_unit_of(run) for finish in finishes for run in finish.get("runs", ())}


def _unit_of(name: str) -> str:
    """The algorithm and the batch size, with which the names of runs and units begin: `sgd-b64`."""
    begins = re.match(r".+?-b\d+(?=-|$)", name)
    return begins[0] if begins else name


def origin(file: Path | str) -> StudyOrigin:
    """Read which study an exported table is of.

    Raises:
        StudyError: Its provenance is missing or unreadable.
    """
    return _origin(Path(file), _document(Path(file)))


def read_exports(
    files: Iterable[Path | str], algorithms: Collection[str] | None = None, batch_sizes: Collection[int] | None = None
) -> list[Exported]:
    """Read exported tables, or the part of them with these algorithms and batch sizes.

    Raises:
        StudyError: A file is missing, unreadable or not as it was written, or none has what was asked for.
    """
    whole = [_load(Path(file)) for file in files]
    specs = [spec for item in whole for spec in item.specs]
    _check_there("algorithm", algorithms, [name for spec in specs for name in spec.algorithms])
    _check_there("batch size", batch_sizes, [size for spec in specs for size in spec.batch_sizes])
    parts = [item.only(algorithms, batch_sizes) for item in whole]
    if specs and not any(item.specs for item in parts):
        raise StudyError("No file has these algorithms with these batch sizes; nothing was imported.")
    return parts


def _check_there(what: str, asked: Collection[object] | None, there: Sequence[Any]) -> None:
    for value in asked or ():
        if value not in there:
            known = ", ".join(map(str, sorted(set(there))))
            raise StudyError(f"No file has the {what} {value}, but {known}; nothing was imported.")


def _load(file: Path) -> Exported:
    metrics, arms, provenance = table_paths(file)
    document = _document(file)
    source = _origin(file, document)
    extra = {name: metrics.with_name(f"{name}.parquet") for name in EXTRA if name in document["sha256"]}
    for name, path in {"metrics": metrics, "arms": arms, **extra}.items():
        if not path.is_file():
            raise StudyError(f"{path} is missing; {_BELONG}.")
        if digest(path) != document["sha256"].get(name):
            raise StudyError(f"{path} is not as it was when {provenance.name} was written; export it again.")
    specs = _specs(document, provenance)
    columns = metric_columns((source.study, *specs))
    # A table may be older than a measure that its algorithms have now.
    rows = read_rows(metrics, columns, optional=columns.keys() - METRIC_COLUMNS.keys())
    if len({(row["run"], row["epoch"]) for row in rows}) < len(rows):
        raise StudyError(f"{file} has two rows for the same run and epoch; export it again.")
    counts = [(row["run"], row["epoch"], row["arm"], row["count"]) for row in read_rows(arms, ARM_COLUMNS)]
    for path in extra.values():
        check_names_in(path)
    extras = Extras(extra, document.get(SINGLES) if "curves" in extra else None)
    return Exported(file, source, specs, tuple(rows), tuple(counts), document["runs"], document["units"], extras)


def _specs(document: Mapping[str, Any], provenance: Path) -> tuple[StudySpec, ...]:
    specs = tuple(stored_study(spec, provenance) for spec in document["specs"])
    if any(spec.fingerprint() != document["fingerprint"] for spec in specs):
        raise unreadable(provenance, "its specs are not all of its study")
    return specs


def _document(file: Path) -> dict[str, Any]:
    """Read the provenance beside a table, and check that everything is there and of the right kind."""
    path = table_paths(file)[2]
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StudyError(f"{path} is missing; {_BELONG}.") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StudyError(f"{path} is not a provenance that this hotswap knows; export it again, or update hotswap.")
    check_provenance_names(document, path)
    check_fingerprint_version(document.get("fingerprint_version", 1), path)  # none was written before there was one
    kinds = {"study": dict, "specs": list, "units": dict, "runs": dict, "sha256": dict}
    for key, kind in {**kinds, "fingerprint": str, "precision": str, "dtype": str}.items():
        if not isinstance(document.get(key), kind):
            raise unreadable(path, f"{key} is missing")
    if not all(_is_mark(mark) for mark in document["runs"].values()):
        raise unreadable(path, "runs has something else than numbers")
    for key in ("units", SINGLES):
        if not is_provenance(document.get(key, {})):
            raise unreadable(path, f"{key} has something else than lists of what finished them")
    return document


def check_provenance_names(document: Mapping[str, Any], path: Path) -> None:
    """Check the names of units and runs in a provenance, whatever else is wrong with it.

    Raises:
        UnsafeNameError: One of them cannot be a name.
    """
    for key in ("precision", "dtype"):
        if isinstance(document.get(key), str):
            check_name(document[key], key, str(path))
    for key, what in (("runs", "run"), ("units", "unit"), (SINGLES, "unit")):
        names = document.get(key)
        for row, (name, entries) in enumerate(names.items() if isinstance(names, dict) else (), start=1):
            check_name(name, what, f"{path}, row {row} in {key}")
            for run in _runs_in(entries):
                check_name(run, "run", f"{path}, row {row} in {key}")


def _runs_in(finishes: object) -> list[Any]:
    """The runs that a unit's entries say that they finished."""
    entries = [entry for entry in finishes if isinstance(entry, dict)] if isinstance(finishes, list) else []
    lists = [entry.get("runs", []) for entry in entries]
    return [run for runs in lists for run in (runs if isinstance(runs, list) else [runs])]


def _is_mark(mark: object) -> bool:
    return (
        isinstance(mark, dict)
        and all(_is_epoch(mark.get(name)) for name in ("epoch", "finished"))
        and isinstance(mark.get("seconds"), int | float)
        and 0 <= mark["seconds"] < math.inf
        and (mark.get("diverged") is None or _is_epoch(mark["diverged"]))
    )


def _is_epoch(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63  # what a database can hold


def _origin(file: Path, document: Mapping[str, Any]) -> StudyOrigin:
    study = stored_study(document["study"], table_paths(file)[2])
    if study.fingerprint() != document["fingerprint"]:
        raise unreadable(table_paths(file)[2], "its fingerprint is not that of its study")
    return StudyOrigin(study, document["precision"], document["dtype"])
