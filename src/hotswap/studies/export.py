"""A study as tables, which pandas reads without hotswap.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotswap.errors import StudyError
from hotswap.files import explained, replacing, write_text
from hotswap.names import check_name
from hotswap.store.folder import ABOUT
from hotswap.store.tables import check_names_in, digest, is_folder, table_paths, write_table
from hotswap.studies.folder import Store
from hotswap.studies.study import FINGERPRINT_VERSION

__all__ = ["FORMAT", "SINGLES", "check_provenance_names", "export"]

FORMAT = 1
EXTRA = ("timing", "curves")
SINGLES = "singles"
"""The study in the study's folder whose runs are trained one at a time, for the curves."""


def export(store: Store, file: Path | str) -> tuple[Path, ...]:
    """Write the study's tables, and return where: metrics, arms, timings if there are any, then provenance.

    Each file is whole or not there.

    Raises:
        StudyError: The file's ending is neither `.parquet` nor `.csv` nor none, it cannot be written, or a finished
            unit of the study is damaged.
    """
    file = Path(file)
    metrics, arms, provenance = paths = table_paths(file)
    store.check_whole()
    extras = {name: store.folder / f"{name}.parquet" for name in EXTRA} if is_folder(file) else {}
    extras = {name: path for name, path in extras.items() if path.is_file()}
    for path in extras.values():
        check_names_in(path)
    _check_free(store, file, metrics, provenance, extras)
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
    if "curves" in extras and (store.folder / SINGLES / ABOUT).is_file():
        document[SINGLES] = Store.open(store.folder / SINGLES).provenance()
    with explained(metrics.parent):
        written = {"metrics": metrics, "arms": arms}
        for path, frame in zip(paths, (store.metrics(), store.arms()), strict=False):
            with replacing(path) as part:
                write_table(frame, part)
        for name, source in extras.items():
            written[name] = metrics.with_name(source.name)
            with replacing(written[name]) as part:
                part.write_bytes(source.read_bytes())
        document["sha256"] = {name: digest(path) for name, path in written.items()}
        write_text(provenance, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return (*written.values(), provenance)


def _check_free(store: Store, file: Path, metrics: Path, provenance: Path, extras: Mapping[str, Path]) -> None:
    """Raise a StudyError where the tables would lie beside others that they do not belong to."""
    if is_folder(file):
        left = [name for name in EXTRA if (file / f"{name}.parquet").is_file() and name not in extras]
        if left:
            raise StudyError(
                f"{file} has {', '.join(left)} of single runs, which {store.folder} has not, and they would no longer "
                "belong to what is beside them; copy them into the study's folder, or export to another folder."
            )
        return
    other = metrics.with_suffix(".csv" if metrics.suffix == ".parquet" else ".parquet")
    if other.exists():
        raise StudyError(
            f"{other} is there already, and {provenance.name} would belong to one of the two only; choose another name."
        )


def check_provenance_names(document: Mapping[str, Any], path: Path) -> None:
    """Check the names of units and runs in an exported provenance, whatever else is wrong with it.

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
