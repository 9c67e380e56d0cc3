"""Tables of a benchmark: written, and put together with those of other machines.

OUT/runs.parquet        a row for each run: what became of it and why, its settings, its provenance
OUT/points.parquet      a row for each measurement
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotswap.bench.comparable import check_together
from hotswap.bench.runs import SETTLED, STATES, Point, Result, Run
from hotswap.bench.store import BenchStore, of_today
from hotswap.bench.workloads import SIZES, Size
from hotswap.errors import StudyError
from hotswap.files import replacing
from hotswap.studies.exchange.table_files import read_rows, unreadable, write_table
from hotswap.studies.storage.store import LEDGER

__all__ = ["export_results", "exported", "gathered", "import_results", "read_results"]

RUN_COLUMNS = {
    **dict.fromkeys(("workload", "method", "configuration", "size", "state", "reason"), "str"),
    **dict.fromkeys(("seed", "budget", "version"), "int64"),
    **dict.fromkeys(("settings", "origin", "digest"), "str"),
}
_OF_POINT = {"percent": "int64", "cost": "float64", "steps": "int64"}
POINT_COLUMNS = {
    **dict.fromkeys(("workload", "method", "configuration"), "str"),
    "seed": "int64",
    **_OF_POINT,
    **dict.fromkeys(("seconds", "train", "validation"), "float64"),
}
_KEY = ("workload", "method", "configuration", "seed")


def export_results(store: BenchStore, folder: Path) -> list[Path]:
    """Write everything that is known; returns the files."""
    import pandas as pd  # noqa: PLC0415 (training needs none)

    if folder.is_file() or (folder.suffix in (".parquet", ".csv") and not folder.is_dir()):
        raise StudyError(f"{folder} is not the name of a folder; the tables of a benchmark go into one.")
    runs, points = [], []
    for result in store.results().values():
        plain = result.plain()
        measured = plain.pop("points")
        texts = {name: json.dumps(plain[name], sort_keys=True) for name in ("settings", "origin")}
        runs.append({**plain, **texts, "digest": result.digest()})
        key = {name: plain[name] for name in _KEY}
        points += [{**key, **dict(zip(Point._fields, values, strict=True))} for values in measured]
    written = []
    for name, rows, columns in (("runs", runs, RUN_COLUMNS), ("points", points, POINT_COLUMNS)):
        kinds: dict[str, Any] = columns
        frame = pd.DataFrame(rows, columns=list(columns)).astype(kinds)
        path = folder / f"{name}.parquet"
        try:
            with replacing(path) as part:
                write_table(frame, part)
        except OSError as error:
            raise StudyError(f"{path} cannot be written ({error.strerror}); the benchmark is untouched.") from error
        written.append(path)
    return written


def read_results(folder: Path) -> list[Result]:
    """What was exported. A run whose rows are not what was exported is there, and called damaged.

    One of another version of its workload or of its method's settings is called outdated.
    """
    return [of_today(result) for result in _exported(folder)]


def _exported(folder: Path) -> list[Result]:
    """The same, whatever version it is of."""
    if not folder.is_dir():
        raise StudyError(f"{folder} is not a folder that `hotswap bench export` has written.")
    if (folder / LEDGER).is_file() and not (folder / "runs.parquet").is_file():
        raise StudyError(
            f"{folder} is a benchmark's own folder; `hotswap bench export {folder} OUT` writes its tables."
        )
    points: dict[tuple[Any, ...], list[Point]] = {}
    for row in read_rows(folder / "points.parquet", POINT_COLUMNS):
        key = tuple(row.pop(name) for name in _KEY)
        points.setdefault(key, []).append(Point(**row))
    file = folder / "runs.parquet"
    return [
        _result(row, points.get(tuple(row[name] for name in _KEY), []), file) for row in read_rows(file, RUN_COLUMNS)
    ]


def _result(row: dict[str, Any], points: list[Point], file: Path) -> Result:
    run = Run(*(row[name] for name in (*_KEY, "size")))
    if row["state"] not in STATES or not all(isinstance(row[name], str) for name in ("settings", "origin")):
        raise unreadable(file, f"it has a state {row['state']!r}")
    if row["size"] not in SIZES:
        raise unreadable(file, f"it has a size {row['size']!r}")
    try:
        settings, origin = json.loads(row["settings"]), json.loads(row["origin"])
    except ValueError as error:
        raise unreadable(file, f"the settings or the origin of {run.id}: {error}") from error
    if not (isinstance(settings, dict) and isinstance(origin, dict)):
        raise unreadable(file, f"the settings or the origin of {run.id} have no names")
    measured = tuple(sorted(points))
    result = Result(run, row["state"], row["reason"], measured, row["budget"], row["version"], settings, origin)
    if result.digest() == row["digest"]:
        return result
    told = f"What {file.parent.name} has of it is not what was exported; it is trained again with the next run."
    return replace(result, state="damaged", reason=told, points=())


def import_results(store: BenchStore, folders: Iterable[Path], *, keep: bool = False) -> int:
    """Add what others have trained; returns how many runs are new. All of it, or nothing. See `gathered`.

    Raises:
        StudyError: A table cannot be read, or see `gathered`.
    """
    new = gathered(store.results(), store.size, store.folder, exported(folders), keep=keep)
    store.record(new.values())
    return len(new)


def exported(folders: Iterable[Path]) -> list[tuple[Path, Result]]:
    """All runs of several exports, whatever version they are of, each with the folder that it is from."""
    return [(folder, result) for folder in folders for result in _exported(folder)]


def gathered(
    known: Mapping[str, Result], size: Size, where: Path, tables: Iterable[tuple[Path, Result]], *, keep: bool = False
) -> dict[str, Result]:
    """The exported runs that are to be added to what is known, by id.

    What has ended counts more than what has not, here or there.

    Args:
        known: The runs of a benchmark.
        size: Of the benchmark.
        where: Its folder.
        tables: What `exported` gives.
        keep: Of runs that have ended here and there with different results, keep what is here. Machines that round
            differently come to different results of the same run.

    Raises:
        StudyError: A run is of another size, contradicts what is known, or cannot be compared with others of its
            workload.
    """
    new: dict[str, Result] = {}
    for folder, result in tables:
        run = result.run
        if run.size != size:
            raise StudyError(f"{folder} is of size {run.size}, and {where} of size {size}.")
        before = new.get(run.id) or known.get(run.id)
        if before is None or _is_better(result, before, folder, keep=keep):
            new[run.id] = result
    check_together(known.values(), map(of_today, new.values()), str(where))
    return new


def _is_better(result: Result, before: Result, folder: Path, *, keep: bool) -> bool:
    """Whether a result takes the place of the one before."""
    settled = [of_today(one).state in SETTLED for one in (result, before)]
    if all(settled) and not keep and _measured(result) != _measured(before):
        raise StudyError(
            f"{folder} contradicts what is known: run {result.run.id} has other results there. Nothing was changed; "
            "leave one of them out, or keep what was known first with --keep."
        )
    return settled[0] and not settled[1]


def _measured(result: Result) -> list[Any]:
    """What must be the same wherever it is trained; NaN is the same as NaN."""
    return [result.state, *(repr(point._replace(seconds=0.0)) for point in result.points)]
