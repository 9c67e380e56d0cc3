"""What `hotswap study timing` leaves in a study's folder: two tables of single runs, and what measured them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotswap.errors import StudyError
from hotswap.files import replacing, write_text
from hotswap.studies.store import Store

__all__ = ["EXTRA", "SINGLES", "Extras", "digest"]

EXTRA = ("timing", "curves")
SINGLES = "singles"  # the study in the study's folder whose runs are trained one at a time
_SINGLES_ELSEWHERE = "singles.json"


@dataclass(frozen=True)
class Extras:
    """The tables that there are, by name, and the provenance of the single runs if these are among them."""

    tables: Mapping[str, Path] = field(default_factory=dict)
    singles: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, folder: Path) -> Extras:
        """Those in a study's folder, wherever they were measured."""
        tables = {name: folder / f"{name}.parquet" for name in EXTRA}
        tables = {name: path for name, path in tables.items() if path.is_file()}
        return cls(tables, _singles(folder) if "curves" in tables else None)

    def check(self, known: Extras) -> None:
        """Raise where others are known already."""
        for name, path in known.tables.items():
            if name in self.tables and digest(path) != digest(self.tables[name]):
                raise StudyError(
                    f"{self.tables[name]} is another table than {path}, which is of the same study; nothing was "
                    "imported. Move the one that is not to be kept out of its folder."
                )

    def copy_to(self, folder: Path) -> None:
        """Into a study's folder, each whole or not at all."""
        for name, path in self.tables.items():
            with replacing(folder / f"{name}.parquet") as part:
                part.write_bytes(path.read_bytes())
        if self.singles is not None and not _has_singles(folder):
            write_text(folder / _SINGLES_ELSEWHERE, json.dumps(self.singles, indent=1, sort_keys=True) + "\n")


def _has_singles(folder: Path) -> bool:
    return (folder / SINGLES / "ledger.sqlite").exists()


def _singles(folder: Path) -> Mapping[str, Any]:
    if _has_singles(folder):
        with Store.open(folder / SINGLES) as store:
            return store.provenance()
    elsewhere = folder / _SINGLES_ELSEWHERE
    found: Mapping[str, Any] = json.loads(elsewhere.read_text(encoding="utf-8")) if elsewhere.exists() else {}
    return found


def digest(path: Path) -> str:
    """A file's SHA-256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
