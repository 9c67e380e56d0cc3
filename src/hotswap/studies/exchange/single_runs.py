"""What `hotswap study timing` leaves in a study's folder: two tables of single runs, and what trained the second.

timing.parquet      Tables 1 and 2
curves.parquet      the runs of Figure 2
singles.json        what finished each of these runs, and the checksum of the curves that it belongs to
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotswap.errors import StudyError
from hotswap.files import replacing, write_text
from hotswap.names import check_name
from hotswap.studies.exchange.table_files import check_names_in

__all__ = ["EXTRA", "SINGLES", "Extras", "digest", "is_provenance", "keep_singles", "tables_in"]

EXTRA = ("timing", "curves")
SINGLES = "singles"  # the study in the study's folder whose runs are trained one at a time
_SINGLES_FILE = f"{SINGLES}.json"

Provenance = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Extras:
    """The tables that there are, by name, and the provenance of the single runs if these are among them."""

    tables: Mapping[str, Path] = field(default_factory=dict)
    singles: Provenance | None = None

    @classmethod
    def of(cls, folder: Path) -> Extras:
        """Those in a study's folder, wherever they were measured."""
        tables = tables_in(folder)
        for path in tables.values():
            check_names_in(path)
        return cls(tables, _singles(folder) if "curves" in tables else None)

    def check(self, known: Mapping[str, Path]) -> None:
        """Raise where other tables are known already."""
        for name in self.tables.keys() & known.keys():
            if digest(self.tables[name]) != digest(known[name]):
                raise StudyError(
                    f"{self.tables[name]} is another table than {known[name]}, which is of the same study; nothing was "
                    "imported. Move the one that is not to be kept out of its folder."
                )

    def copy_to(self, folder: Path) -> None:
        """Into a study's folder that has none, or the same: all of them, or nothing."""
        made: list[Path] = []
        try:
            if self.singles and not ("curves" in tables_in(folder) and _singles(folder)):
                made.append(folder / _SINGLES_FILE)
                keep_singles(folder, self.tables["curves"], self.singles)
            for name in self.tables.keys() - tables_in(folder).keys():
                with replacing(folder / f"{name}.parquet") as part:
                    part.write_bytes(self.tables[name].read_bytes())
                made.append(folder / f"{name}.parquet")
        except OSError as error:
            for path in made:
                path.unlink(missing_ok=True)
            raise StudyError(
                f"Timings cannot be written to {folder} ({error.strerror}); nothing was imported."
            ) from error


def tables_in(folder: Path) -> dict[str, Path]:
    """The tables of a study's folder."""
    tables = {name: folder / f"{name}.parquet" for name in EXTRA}
    return {name: path for name, path in tables.items() if path.is_file()}


def keep_singles(folder: Path, curves: Path, units: Provenance) -> None:
    """Write down what trained the runs of a table; before the table itself, which is worth less without."""
    content = {"curves": digest(curves), "units": units}
    write_text(folder / _SINGLES_FILE, json.dumps(content, indent=1, sort_keys=True) + "\n")


def _singles(folder: Path) -> Provenance:
    """What trained the runs of the folder's curves; empty if nobody knows."""
    path = folder / _SINGLES_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        units: Provenance = content["units"] if content["curves"] == digest(folder / "curves.parquet") else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        units = None  # type: ignore[assignment]  # which is no provenance
    for row, unit in enumerate(units if isinstance(units, dict) else (), start=1):
        check_name(unit, "unit", f"{path}, row {row} in units")
    if not is_provenance(units):
        raise StudyError(f"{path} is damaged; delete it, or let `hotswap study timing {folder}` write it anew.")
    return units


def is_provenance(units: object) -> bool:
    """Whether it is lists of what finished each unit."""
    return isinstance(units, dict) and all(
        name and isinstance(done, list) and all(isinstance(finish, dict) for finish in done)
        for name, done in units.items()
    )


def digest(path: Path) -> str:
    """A file's SHA-256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
