"""Tables of a benchmark, which pandas reads without hotswap.

OUT/runs.parquet        a row for each run: what became of it and why, its settings, its provenance
OUT/points.parquet      a row for each measurement
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotswap.bench.methods import METHODS
from hotswap.bench.runs import Point, Result, Run
from hotswap.bench.workloads import WORKLOADS
from hotswap.errors import SettingError, StudyError
from hotswap.files import explained, replacing
from hotswap.store import parsed
from hotswap.store.tables import read_rows, unreadable, write_table

__all__ = ["RUNS", "export_results", "of_today", "read_exported", "read_results"]

RUNS = "runs.parquet"
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


def export_results(results: Iterable[Result], folder: Path) -> list[Path]:
    """Write everything that is known; returns the files."""
    import pandas as pd  # noqa: PLC0415 (training needs none)

    if folder.is_file() or (folder.suffix in (".parquet", ".csv") and not folder.is_dir()):
        raise StudyError(f"{folder} is not the name of a folder; the tables of a benchmark go into one.")
    runs, points = [], []
    for result in results:
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
        with explained(folder), replacing(path) as part:
            write_table(frame, part)
        written.append(path)
    return written


def read_exported(folder: Path) -> list[Result]:
    """The exported results, of any version. A run whose rows differ from the exported rows is called damaged."""
    if not (folder / RUNS).is_file():
        raise StudyError(f"{folder} is not a folder that `hotswap bench export` has written.")
    points: dict[tuple[Any, ...], list[Point]] = {}
    for row in read_rows(folder / "points.parquet", POINT_COLUMNS):
        key = tuple(row.pop(name) for name in _KEY)
        points.setdefault(key, []).append(Point(**row))
    file = folder / RUNS
    return [
        _result({**row, "points": sorted(points.get(tuple(row[name] for name in _KEY), []))}, file)
        for row in read_rows(file, RUN_COLUMNS)
    ]


def _result(row: dict[str, Any], file: Path) -> Result:
    try:
        row |= {name: parsed(row[name].encode(), "JSON") for name in ("settings", "origin")}
        result = Result.of(row)
    except StudyError as error:
        run = Run(*(row[name] for name in (*_KEY, "size")))
        raise unreadable(file, f"the settings or the origin of {run.id}: {error}") from error
    except ValueError as error:
        raise unreadable(file, error) from error
    if result.digest() == row["digest"]:
        return result
    told = f"What {file.parent.name} has of it is not what was exported; it is trained again with the next run."
    return replace(result, state="damaged", reason=told, points=())


def read_results(folder: Path) -> list[Result]:
    """The exported results. A run whose rows differ from the exported rows is included, and called damaged.

    A run of another version of its workload or of its method's settings is called outdated.
    """
    return [of_today(result) for result in read_exported(folder)]


def of_today(result: Result) -> Result:
    """The result, or a row that says that it is of the past."""
    if is_current(result):
        return result
    told = "The workload, the method or its package has changed since; it is trained again with the next run."
    return replace(result, state="outdated", reason=told, points=())


def is_current(result: Result) -> bool:
    """Whether a result is of the workload, the method, its settings and its package's version of today."""
    run, origin = result.run, result.origin
    if result.state == "damaged" or run.workload not in WORKLOADS or run.method not in METHODS:
        return True  # a workload or method from elsewhere has nothing to be compared with
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
