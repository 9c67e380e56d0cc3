"""Bayesian searches that were made: a file beside a study's tables, to be read by reports and continued.

tuning.json     by measure, the order in which each search trained settings, by their places in `Space.settings`, and
                the digest of the space, without which the places mean nothing; what made them
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hotswap.errors import StudyError
from hotswap.files import write_text
from hotswap.report.tuning.bayesian import bayesian_search
from hotswap.report.tuning.space import Measure, Space

__all__ = ["FILE", "Orders", "read_searches", "search_on"]

FILE = "tuning.json"
FORMAT = 1

Orders = tuple[tuple[int, ...], ...]
"""Which settings each search has trained, one after the other."""


def read_searches(folder: Path, spaces: Mapping[Measure, Space]) -> dict[Measure, Orders]:
    """The searches of these spaces in a folder, by measure; none where there is no file.

    Raises:
        StudyError: The file cannot be read, or is of other results.
    """
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise StudyError(f"{path} is of another version of hotswap; {_again(folder)}.")
        stored = {measure: document["searches"][measure] for measure in spaces if measure in document["searches"]}
        if any(entry["digest"] != spaces[measure].digest for measure, entry in stored.items()):
            raise StudyError(f"{path} is of other results than those beside it; {_again(folder)}.")
        found = {measure: _orders(entry["orders"], spaces[measure]) for measure, entry in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise StudyError(f"{path} cannot be read ({why}); {_again(folder)}.") from error
    return {measure: orders for measure, orders in found.items() if orders}


def _again(folder: Path) -> str:
    return f"delete it, and let `hotswap study tuning {folder}` write it anew"


def _orders(stored: Any, space: Space) -> Orders:
    """Checked: each search tries settings that there are, none twice, and ends with the best."""
    orders = tuple(tuple(order) for order in stored)
    places, best = set(range(len(space.values))), space.values.min()
    for order in orders:
        if not order or not places.issuperset(order) or len(set(order)) < len(order):
            raise ValueError("a search has settings that are not there, or one twice")
        if space.values[order[-1]] != best:
            raise ValueError("a search does not end with the best setting")
    return orders


def search_on(
    folder: Path,
    spaces: Mapping[Measure, Space],
    count: int,
    command: str,
    done: Callable[[Measure, int], None] = lambda _measure, _number: None,
) -> dict[Measure, Orders]:
    """Make searches with seeds 0, 1, … until there are so many of each measure; those in the folder are kept.

    The file is written after each, so that nothing is lost when this is interrupted. `done` is told each number.

    Raises:
        StudyError: See `read_searches`; or the file cannot be written.
    """
    orders: dict[Measure, list[Sequence[int]]] = {measure: [] for measure in spaces}
    orders |= {measure: list(known) for measure, known in read_searches(folder, spaces).items()}
    for measure, space in spaces.items():
        done(measure, len(orders[measure]))
        while len(orders[measure]) < count:
            orders[measure].append(bayesian_search(space, seed=len(orders[measure])))
            _write(folder / FILE, spaces, orders, command)
            done(measure, len(orders[measure]))
    return {measure: tuple(map(tuple, found)) for measure, found in orders.items()}


def _write(
    path: Path, spaces: Mapping[Measure, Space], orders: Mapping[Measure, Sequence[Sequence[int]]], command: str
) -> None:
    packages = {name: version(name) for name in ("scikit-learn", "scipy", "numpy")}
    document = {
        "format": FORMAT,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **packages},
        "searches": {
            measure: {"algorithm": space.tuned, "digest": space.digest, "orders": orders[measure]}
            for measure, space in spaces.items()
        },
    }
    try:
        write_text(path, json.dumps(document) + "\n")
    except OSError as error:
        raise StudyError(f"{path} cannot be written ({error.strerror}); choose a folder that can be.") from error
