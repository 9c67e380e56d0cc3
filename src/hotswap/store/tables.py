"""Tables as files: which columns they have, where they lie, how they are read and written."""

from __future__ import annotations

import csv
import hashlib
import operator
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotswap.errors import StudyError
from hotswap.names import NAMED, check_named, one_line

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "TIMING_COLUMNS",
    "check_names_in",
    "digest",
    "is_folder",
    "read_rows",
    "table_paths",
    "unreadable",
    "write_table",
]

TIMING_COLUMNS = {
    "algorithm": "str",
    "batch_size": "int64",
    "epoch": "int64",
    "milliseconds": "float64",
    "seconds": "float64",
    "trials": "float64",
    "device": "str",
    "precision": "str",
    "torch": "str",
}


MOST_ROWS = 20_000_000
"""Rows of a table, and a hundred times as many bytes: ten times what a study of 100,000 runs has."""


def is_folder(file: Path) -> bool:
    """True if an export of this name is a folder with several files."""
    return file.suffix == "" or file.is_dir()


def table_paths(file: Path) -> tuple[Path, Path, Path]:
    """The paths of the metrics, the arms and the provenance in an export of this name."""
    if is_folder(file):
        return file / "metrics.parquet", file / "arms.parquet", file / "provenance.json"
    if file.suffix not in {".parquet", ".csv"}:
        raise StudyError(f"{file} ends in neither .parquet nor .csv; choose one of them, or a folder's name.")
    return file, file.with_name(f"{file.stem}.arms{file.suffix}"), file.with_name(f"{file.stem}.provenance.json")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write it in the format that the ending names."""
    if path.suffix == ".csv":
        frame.to_csv(path, index=False, lineterminator="\n")
    else:
        frame.to_parquet(path, index=False, compression="zstd")


def read_rows(path: Path, columns: Mapping[str, str], *, optional: Collection[str] = ()) -> list[dict[str, Any]]:
    """Read the rows of a table: these columns, as Python's own types, and no others; what holds names is checked.

    A column that is `optional` and not in the table is not in the rows either.

    Raises:
        StudyError: The table cannot be read, lacks a column, or has a name that cannot be one.
    """
    import pyarrow as pa  # noqa: PLC0415 (training needs none)

    try:
        _check_size(path)
        found = _csv(path) if path.suffix == ".csv" else _parquet(path)
        missing = [name for name in columns if name not in found and name not in optional]
        if not missing:
            there = [name for name in columns if name in found]
            values = [[_AS[columns[name]](value) for value in found[name]] for name in there]
            check_named(dict(zip(there, values, strict=True)), str(path))
            return [dict(zip(there, row, strict=True)) for row in zip(*values, strict=True)]
    except (OSError, ValueError, TypeError, csv.Error, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    raise StudyError(f"{path} cannot be read (it lacks the column {missing[0]}).")


def _check_size(path: Path) -> None:
    """Raise a StudyError for a table that is too large, before its rows are read."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (training needs none)

    rows, size = 0, path.stat().st_size
    if path.suffix != ".csv":
        with pq.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            size = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
    if rows > MOST_ROWS or size > 100 * MOST_ROWS:
        raise StudyError(
            f"{path} has {rows:,} rows in {size:,} bytes; a table may have {MOST_ROWS:,} rows and {100 * MOST_ROWS:,} "
            "bytes. Divide the study."
        )


def check_names_in(path: Path) -> None:
    """Check the names in a table that is copied and not read.

    Raises:
        StudyError: The table cannot be read, or has a name that cannot be one.
    """
    read_rows(path, dict.fromkeys(NAMED, "str"), optional=NAMED)


def _csv(path: Path) -> dict[str, list[Any]]:
    with path.open(encoding="utf-8", newline="") as stream:
        names, *rows = list(csv.reader(stream, strict=True)) or [[]]
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq  # noqa: PLC0415 (training needs none)

    # As bare lists: types that a file defines for itself, and could bring code along with, are not looked at.
    with pq.ParquetFile(path) as file:
        table = file.read()
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _float(value: str | float | None) -> float:
    """Read a number; an empty cell is NaN. Python's own reading gives back the very number that was written."""
    return float("nan") if value is None or value == "" else float(value)


def _whole(value: str | int) -> int:
    return int(value) if isinstance(value, str) else operator.index(value)


def digest(path: Path) -> str:
    """A file's SHA-256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_AS: dict[str, Callable[[Any], Any]] = {"str": str, "int64": _whole, "float64": _float}


def unreadable(path: Path, why: object) -> StudyError:
    """In one line, whatever a library said."""
    return StudyError(f"{path} cannot be read ({one_line(str(why))}).")
