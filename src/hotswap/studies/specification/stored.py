"""Studies as folders and files hold them, read where what they name may not be registered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from hotswap.errors import HotSwapError, StudyError
from hotswap.names import check_name
from hotswap.studies.specification.study import StudySpec

__all__ = ["check_stored_names", "stored_study"]


def stored_study(table: Any, place: Path) -> StudySpec:
    """The study that `StudySpec.to_dict` wrote into a folder or a file, which is the `place`.

    Raises:
        StudyError: It is damaged, has a name that cannot be one, or it names an algorithm, a network or the like that
            is not registered here.
    """
    check_stored_names(table, place)
    try:
        return StudySpec.from_dict(table)
    except (HotSwapError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise StudyError(
            f"{place} cannot be read ({why}); if its study uses something of your own, load the file that registers "
            "it: `hotswap --load FILE`, followed by the command."
        ) from error


MOST_RUNS = 1_000_000
"""The most runs of a study that is read: more would take minutes before anything could be said of them."""


def _check_size(table: Any, place: Path) -> None:
    """Raise a StudyError for a study of too many runs, before they are made."""
    if not isinstance(table, Mapping):
        return
    lists = [table.get(name) for name in ("seeds", "batch_sizes")]
    families = [family for family in table.get("families") or () if isinstance(family, Mapping)]
    grids = [prod(len(value) for value in family.values() if isinstance(value, list)) for family in families]
    runs = prod(len(value) for value in lists if isinstance(value, list)) * sum(grids)
    if runs > MOST_RUNS:
        raise StudyError(
            f"{place} cannot be read (its study has {runs:,} runs, and may have {MOST_RUNS:,}); divide it by seeds or "
            "batch sizes."
        )


def check_stored_names(table: object, place: Path) -> None:
    """Check every name in a stored study, whatever else is wrong with it, and that it has not too many runs.

    Raises:
        StudyError: It has too many runs.
        UnsafeNameError: One of them cannot be a name.
    """
    _check_size(table, place)
    for key, what, name in _names(table):
        if isinstance(name, str):
            check_name(name, what, f"{place}, {key} of the study")


def _names(table: object) -> Iterator[tuple[str, str, object]]:
    """The place of each name in a stored study, the kind of thing that it names, and the name."""
    if not isinstance(table, Mapping):
        return
    for key, what in (("name", "study"), ("dataset", "data set")):
        yield key, what, table.get(key)
    if isinstance(table.get("network"), Mapping):
        yield "network", "network", table["network"].get("name")
    for key in ("families", "set_aside"):
        families = table.get(key)
        for row, family in enumerate(families if isinstance(families, list) else (), start=1):
            if isinstance(family, Mapping):
                yield f"row {row} in {key}", "family", family.get("name")
                yield f"row {row} in {key}", "algorithm", family.get("algorithm")
