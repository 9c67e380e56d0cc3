"""A benchmark's folder: every run that was trained, or why it was not. See `hotswap.store`.

A run is a unit, and is stored when it has ended. A process that is killed before that leaves no trace of its run.
Tables that `hotswap bench export` wrote count, too, where they lie in the folder: runs.parquet and points.parquet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from hotswap.bench.exchange import RUNS, of_today, read_exported
from hotswap.bench.runs import SETTLED, Result, Run
from hotswap.bench.workloads import SIZES, Size
from hotswap.errors import DamagedError, StudyError
from hotswap.names import check_name
from hotswap.store import Folder
from hotswap.store.folder import ABOUT

__all__ = ["WAITING", "BenchStore"]

WAITING = "waiting for room"


class BenchStore:
    """One benchmark's folder. Made by `BenchStore.create` or `BenchStore.open`; nothing has to be closed."""

    def __init__(self, folder: Path, units: Folder | None) -> None:
        self.folder = folder
        self._units = units
        self._exported: list[Result] = read_exported(folder) if (folder / RUNS).is_file() else []
        sizes: set[Any] = {result.run.size for result in self._exported} | (
            {units.about.get("size")} if units else set()
        )
        if len(sizes) != 1 or not sizes <= set(SIZES):
            raise StudyError(
                f"{folder} is of sizes {', '.join(map(str, sizes)) or 'unknown'}, and a benchmark has one of "
                f"{' and '.join(SIZES)}; choose another folder."
            )
        self.size: Size = sizes.pop()

    @classmethod
    def create(cls, folder: Path, size: Size) -> Self:
        """Open a folder, making it where need be.

        Raises:
            StudyError: It holds a benchmark of another size, or something else.
        """
        store = cls(folder, Folder.create(folder, "benchmark", {"size": size}))
        if store.size != size:
            raise StudyError(
                f"{folder} holds a benchmark of size {store.size}, not {size}; choose another folder, or that size."
            )
        return store

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a folder that holds a benchmark, or its exported tables.

        Raises:
            StudyError: It holds neither, or is damaged or newer than this program.
        """
        if (folder / RUNS).is_file() and not (folder / ABOUT).is_file():
            return cls(folder, None)
        return cls(folder, Folder.open(folder, "benchmark"))

    @property
    def units(self) -> Folder:
        """The folder of units."""
        if self._units is None:
            raise StudyError(f"{self.folder} has exported tables alone; `hotswap bench run` makes a benchmark of it.")
        return self._units

    @property
    def damaged(self) -> tuple[str, ...]:
        """A sentence for each run that cannot be used, as far as `results` has seen."""
        return () if self._units is None else tuple(self._units.damaged.values())

    def check_whole(self) -> None:
        """Raise a StudyError if a run's file is damaged: what is written from the rest would lack it."""
        self.results()
        for sentence in self.damaged:
            raise StudyError(sentence)

    def holding(self, run: Run) -> AbstractContextManager[None]:
        """Hold a run, or raise `UnitTaken` if another process does."""
        return self.units.holding(run.id)

    def running(self, run: Run) -> str | None:
        """The place where a run is being trained; None if it is not, or if a cluster has no room for it yet."""
        where = None if self._units is None else self._units.whereabouts(run.id)
        return None if where == WAITING else where

    def record(self, results: Iterable[Result]) -> None:
        """Store the results of runs, in the place of their earlier results."""
        for result in results:
            self.units.store(result.run.id, result.plain())

    def results(self) -> dict[str, Result]:
        """The result of each run, by its id. An outdated result says so.

        Raises:
            StudyError: Two files disagree on a run, or one has a name that cannot be one.
        """
        found: dict[str, tuple[Path, Result]] = {
            result.run.id: (self.folder / RUNS, of_today(result)) for result in self._exported
        }
        for name, content in ({} if self._units is None else self._units.units()).items():
            file = self.units.file(name)
            try:
                result = of_today(_read(content, file, self.size))
            except DamagedError as error:
                self.units.is_damaged(name, error.why)
                continue
            before = found.get(result.run.id)
            if before is None or _is_better(result, before[1], file, before[0]):
                found[result.run.id] = file, result
        return {run: result for run, (_, result) in found.items()}


def _read(content: Mapping[str, Any], file: Path, size: Size) -> Result:
    """The result that a unit's file has.

    Raises:
        DamagedError: Something in it cannot be.
        StudyError: It is of another size.
    """
    for name in ("workload", "method", "configuration"):
        check_name(content.get(name), name, str(file))
    try:
        result = Result.of(content)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(file, f"it is no result: {type(error).__name__}: {error}") from error
    if result.run.size != size:
        raise StudyError(f"{file} is of size {result.run.size}, and the benchmark of size {size}; move it elsewhere.")
    return result


def _is_better(result: Result, before: Result, file: Path, other: Path) -> bool:
    """Whether a result takes the place of another file's: a run that has ended counts more."""
    ended = ("finished", "diverged")
    if result.state in ended and before.state in ended and _measured(result) != _measured(before):
        raise StudyError(
            f"{file} and {other} disagree on the run {result.run.id}: machines that round differently come to "
            "different results of the same run. Move one of the two out of the folder."
        )
    return result.state in SETTLED or before.state not in SETTLED


def _measured(result: Result) -> list[Any]:
    """The parts of a result that must be the same on every machine; NaN equals NaN."""
    return [result.state, *(repr(point._replace(seconds=0.0)) for point in result.points)]
