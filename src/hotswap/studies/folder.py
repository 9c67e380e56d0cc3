"""A study's folder: which runs there are, what each has measured, and who trains which unit. See `hotswap.store`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from hotswap.errors import DamagedError, HotSwapError, StudyError
from hotswap.names import check_name
from hotswap.store import Checkpoints, Folder, read_record
from hotswap.store.checkpoints import named
from hotswap.store.folder import ABOUT, alone
from hotswap.studies.rows import Stored, arm_frame, check_unit, metric_columns, metric_frame, same_measures
from hotswap.studies.study import FINGERPRINT_VERSION, StudySpec, Unit, check_stored_names, plan, stored_study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DTYPE", "Store", "Summary", "UnitSummary"]

PRECISIONS = ("fp32", "tf32", "fp64")
DTYPE = "float32"
"""The type of the weights: one, so far."""
_IDENTITY = ("fingerprint", "precision", "dtype")


# The state of a study.


@dataclass(frozen=True)
class UnitSummary:
    """The state of one unit.

    Attributes:
        id: The unit's name.
        algorithm: The algorithm of every run in it.
        batch_size: The batch size of every run in it.
        runs: How many there are.
        epochs_done: How far training has come, as far as was recorded.
        epochs: How many epochs each run is to have.
        seconds: How long it has been trained.
        diverged: How many of its runs have diverged.
        state: `done`, `running` in some process, or `left`.
        kept: The epoch of its latest checkpoint: if nobody trains it any more, training goes on from there.
        where: The process that trains it, and the node of the process; empty if no process trains it.
        seconds_left: How long the rest may take; None while there is no pace to guess it from.
    """

    id: str
    algorithm: str
    batch_size: int
    runs: int
    epochs_done: int
    epochs: int
    seconds: float
    diverged: int
    state: Literal["done", "running", "left"]
    kept: int = 0
    seconds_left: float | None = None
    where: str = ""


@dataclass(frozen=True)
class Summary:
    """The state of a study; `damaged` has a sentence for each file that cannot be used."""

    name: str
    precision: str
    units: tuple[UnitSummary, ...]
    damaged: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Training time so far, over all units."""
        return sum(unit.seconds for unit in self.units)

    @property
    def seconds_left(self) -> float | None:
        """Training time to come, for one process; None while there is no pace to guess it from."""
        left = [unit.seconds_left for unit in self.units if unit.seconds_left is not None]
        return sum(left) if len(left) == len(self.units) else None


def _seconds_left(unit: UnitSummary, units: Sequence[UnitSummary]) -> float | None:
    """Guess from the pace of the unit itself, or else of those most like it: seconds for one epoch of one run."""
    start = unit.epochs_done if unit.state == "running" else unit.kept
    left = unit.runs * (unit.epochs - start)
    if unit.state == "done" or not left:
        return 0.0
    measured = [other for other in units if other.seconds > 0 and other.epochs_done > 0]
    same = [other for other in measured if other.algorithm == unit.algorithm]
    for alike in (
        [other for other in measured if other.id == unit.id],
        [other for other in same if other.batch_size == unit.batch_size],
        same,
        measured,
    ):
        if alike:
            return left * sum(u.seconds for u in alike) / sum(u.runs * u.epochs_done for u in alike)
    return None


# The folder.


@dataclass(frozen=True)
class Known:
    """A run, from the file in which it is furthest.

    Attributes:
        run: The run as it is stored.
        unit: The unit that it was trained in.
        file: The name of the file or of the folder of checkpoints that has the run.
        epoch: How far it is.
        finished: For how many epochs it is finished; 0 if only a checkpoint has it.
        seconds: Its share of the time for which its unit has been trained.
    """

    run: Stored
    unit: str
    file: str
    epoch: int
    finished: int
    seconds: float


class Store:
    """One study's folder. Made by `Store.create` or `Store.open`; nothing has to be closed."""

    def __init__(self, units: Folder) -> None:
        self.units, self.folder = units, units.path
        self._checked: dict[str, dict[str, Any]] = {}
        about = units.about
        try:
            self.fingerprint, self.precision, self.dtype = (str(about[name]) for name in _IDENTITY)
            planned = [(unit, *map(str, known["runs"])) for unit, known in about["units"].items()]
            whole = bool(about["specs"]) and all(isinstance(spec, dict) for spec in about["specs"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(self.folder / ABOUT, f"it lacks {error}") from error
        if not whole or self.precision not in PRECISIONS or self.dtype != DTYPE:
            raise DamagedError(self.folder / ABOUT, "it lacks specs, precision or dtype")
        if (version := about.get("fingerprint_version")) != FINGERPRINT_VERSION:
            raise StudyError(
                f"{self.folder} was written by a newer hotswap (its fingerprints are of version {version}, and this "
                f"one knows {FINGERPRINT_VERSION}); update hotswap."
            )
        for unit, *runs in planned:
            check_name(unit, "unit", str(self.folder))
            for run in runs:
                check_name(run, "run", str(self.folder))
        for table in about["specs"]:
            check_stored_names(table, self.folder)

    @classmethod
    def create(cls, folder: Path | str, study: StudySpec, *, precision: str, max_runs: int | None = None) -> Self:
        """Open the study's folder, making it where need be.

        A folder that holds the same study grows by what is asked beyond it: epochs, batch sizes, seeds, algorithms.

        Args:
            folder: The study's folder.
            study: The study to run.
            precision: How matrix products are computed, `fp32` or `tf32`.
            max_runs: The most runs of a unit, as for `plan`.

        Raises:
            StudyError: The folder holds another study, or this one computed otherwise.
            SettingError: Two columns of the study's tables would have the same name.
        """
        metric_columns([study])  # before there is a folder that holds a study which cannot be
        folder = Path(folder)
        identity = {"fingerprint": study.fingerprint(), "precision": precision, "dtype": DTYPE}
        about = {**identity, "fingerprint_version": FINGERPRINT_VERSION, "specs": [study.to_dict()], "units": {}}
        Folder.create(folder, "study", about)
        with alone(folder):
            store = cls.open(folder)
            store._check_same_study(study, precision)
            store._extend(study, max_runs)
        return store

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder that holds a study.

        Raises:
            StudyError: It holds none, or is damaged or newer than this program.
        """
        return cls(Folder.open(Path(folder), "study"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    # The study.

    @property
    def study(self) -> StudySpec:
        """The study as it was last asked for. The folder covers all that was ever asked."""
        return self.specs()[-1]

    def specs(self) -> list[StudySpec]:
        """Return the study in each extent in which it was asked for, the last one last."""
        return [stored_study(table, self.folder) for table in self.stored_specs()]

    def stored_specs(self) -> list[dict[str, Any]]:
        """The same as they were stored, whether or not what they name is registered here.

        Those that came along with units from elsewhere are the first.
        """
        asked = list(self.units.about["specs"])
        came: list[dict[str, Any]] = []
        for content in self._finished().values():
            came += [content["study"]] if content["study"] not in (*came, *asked) else []
        return [*came, *asked]

    @property
    def epochs(self) -> int:
        """How many epochs each run is to have: the most that was asked for."""
        return max(int(spec["epochs"]) for spec in self.stored_specs())

    def _check_same_study(self, study: StudySpec, precision: str) -> None:
        """Raise a StudyError for another study than the folder's, or the same one computed otherwise."""
        if study.fingerprint() != self.fingerprint:
            ours = stored_study(self.units.about["specs"][-1], self.folder)
            found = ours.differences(study)
            more = f"; and {len(found) - 3} more" if found[3:] else ""
            differ = f": there {'; '.join(found[:3])}{more}" if found else ""
            raise StudyError(
                f"{self.folder} holds the study {ours.name!r} ({self.fingerprint[:12]}), not {study.name!r} "
                f"({study.fingerprint()[:12]}){differ}; choose another folder."
            )
        if precision != self.precision:
            raise StudyError(
                f"{self.folder} holds results computed in {self.precision} with {self.dtype} weights, not in "
                f"{precision} with {DTYPE}; choose another folder, or keep to that."
            )

    def _extend(self, study: StudySpec, max_runs: int | None) -> None:
        """Add the runs and epochs of `study`, the same study in another extent; nothing is ever taken away."""
        asked = study.to_dict()
        if asked not in self.units.about["specs"]:
            metric_columns([*self.specs(), study])
        specs = [spec for spec in self.units.about["specs"] if spec != asked] + [asked]
        units = {name: {**known, "runs": list(known["runs"])} for name, known in self.units.about["units"].items()}
        planned = plan(study, max_runs)
        taken = {run.id for unit in planned for run in unit.runs}
        for known in units.values():
            known["runs"] = [run for run in known["runs"] if run not in taken]
        for unit in planned:
            known = units.setdefault(unit.id, {"runs": []})
            known |= {"algorithm": unit.algorithm, "batch_size": unit.batch_size}
            known["runs"] += [run.id for run in unit.runs]
        units = {name: known for name, known in units.items() if known["runs"]}
        if (specs, units) != (self.units.about["specs"], self.units.about["units"]):
            self.units.change({"specs": specs, "units": units})

    # The measures of runs.

    def _finished(self) -> dict[str, dict[str, Any]]:
        """The records of the finished units, by file, each checked; `units.damaged` says why a file cannot be used."""
        found = {}
        for name, content in self.units.units().items():
            try:
                if self._checked.get(name) is not content:  # each file is checked once
                    self._check_finished(content, self.units.file(name))
                found[name] = content
            except DamagedError as error:
                self.units.is_damaged(name, error.why)
        self._checked = found
        return found

    def _check_unit(self, content: Mapping[str, Any], file: Path) -> None:
        """Check a unit that may have come from elsewhere, or whose file may have been changed by hand."""
        check_unit(content, file)
        check_stored_names(content["study"], file)
        identity = tuple(str(content.get(name)) for name in _IDENTITY)
        if identity != (self.fingerprint, self.precision, self.dtype):
            raise StudyError(
                f"{file} is of another study, or computed otherwise ({', '.join(identity)}, and the folder's "
                f"{self.fingerprint}, {self.precision}, {self.dtype}); move it out of the folder."
            )

    def _check_finished(self, content: Mapping[str, Any], file: Path) -> None:
        self._check_unit(content, file)
        for run, stored in content["runs"].items():
            if not stored["rows"] or stored["rows"][-1][0] != content["epochs"]:
                raise DamagedError(file, f"it lacks a row of {run} at its last epoch, {content['epochs']}")

    def known(self) -> dict[str, Known]:
        """The measures so far of each run that was begun.

        Raises:
            StudyError: Two finished units disagree; the sentence names both.
        """
        found: dict[str, Known] = {}
        finished = self._finished()
        for name, content in finished.items():
            for run, one in _runs_of(content, name, finished=content["epochs"]).items():
                before = found.get(run)
                if before is not None:
                    self._check_same(run, one, before)
                if before is None or before.finished < one.finished:
                    found[run] = one
        for place in sorted((self.folder / "checkpoints").glob("*")):
            checkpoints = Checkpoints(place)
            done = finished.get(place.name)
            if done is not None and done["epochs"] >= checkpoints.last_epoch():
                continue
            for run, one in self._begun(checkpoints).items():
                before = found.get(run)
                if before is None or before.epoch < one.epoch:
                    found[run] = one if before is None else replace(one, finished=before.finished)
        return found

    def _begun(self, checkpoints: Checkpoints) -> dict[str, Known]:
        """The runs in the latest checkpoint of a unit, if it is of this study; weights are not looked at."""
        content = checkpoints.content()
        try:
            whole = {**(content or {}), "provenance": {}}
            whole["epochs"] = whole["epoch"]
            self._check_unit(whole, checkpoints.folder)
        except (KeyError, StudyError):
            return {}
        return _runs_of(whole, checkpoints.folder.name, finished=0)

    def _check_same(self, run: str, one: Known, before: Known) -> None:
        differ = same_measures(one.run, before.run)
        if differ is not None:
            first, second = (self.units.file(known.file) for known in (before, one))
            raise StudyError(
                f"{first} and {second} disagree on the run {run}: {differ}. Move one of the two files out of the "
                "folder."
            )

    def metrics(self) -> pd.DataFrame:
        """Return one row a run and recorded epoch, sorted by run and epoch. See `metric_frame` for the columns."""
        return metric_frame({run: known.run for run, known in self.known().items()})

    def arms(self) -> pd.DataFrame:
        """Return how often each run took each arm in each recorded epoch, columns as in `ARM_COLUMNS`, sorted."""
        return arm_frame({run: known.run for run, known in self.known().items()})

    def marks(self) -> dict[str, dict[str, Any]]:
        """Return, by run that was begun, how far it is and for how many epochs finished, when it diverged, its time."""
        return {
            run: {"epoch": one.epoch, "seconds": one.seconds, "finished": one.finished, "diverged": one.run["diverged"]}
            for run, one in sorted(self.known().items())
        }

    def provenance(self) -> dict[str, list[dict[str, Any]]]:
        """Return by unit what finished which runs of it for how many epochs, in the order of their dates."""
        found: dict[str, list[dict[str, Any]]] = {}
        for content in self._finished().values():
            entry = {"epochs": content["epochs"], **content["provenance"], "runs": list(content["runs"])}
            found.setdefault(content["unit"], []).append(entry)
        for entries in found.values():
            entries.sort(key=lambda entry: str(entry.get("date", "")))
        return dict(sorted(found.items()))

    def check_whole(self) -> None:
        """Raise a StudyError if a finished unit is damaged: what is written from the rest would lack it."""
        self._finished()
        for sentence in self.units.damaged.values():
            raise StudyError(sentence)

    # Training.

    def left(self, study: StudySpec, max_runs: int | None = None) -> list[Unit]:
        """The units of a study that are to be trained, each without the runs that are finished."""
        known = self.known()
        done = {run for run, one in known.items() if one.finished >= study.epochs}
        units = []
        for unit in plan(study, max_runs):
            runs = tuple(run for run in unit.runs if run.id not in done)
            units += [replace(unit, runs=runs)] if runs else []
        return units

    def is_finished(self, unit: Unit, epochs: int) -> bool:
        """True if another process has finished exactly this unit since it was planned."""
        file = self.units.file(named(unit.id, [run.id for run in unit.runs]))
        try:
            return file.exists() and int(read_record(file)["epochs"]) >= epochs
        except (HotSwapError, KeyError, TypeError, ValueError):
            return False

    def holding(self, unit: Unit) -> AbstractContextManager[None]:
        """Hold a unit, so that no other process trains it.

        Raises:
            UnitTaken: Another process holds it.
        """
        return self.units.holding(unit.id)

    def finish(self, content: Mapping[str, Any]) -> None:
        """Store what a finished unit has measured, and what did it. A run is in one file, that with the most epochs.

        Raises:
            StudyError: A run of the unit has no row at its last epoch.
        """
        name = named(content["unit"], content["runs"])
        self._check_finished(content, self.units.file(name))
        with alone(self.folder):
            kept = dict(content["runs"])
            for other, there in self._finished().items():
                shared = kept.keys() & there["runs"].keys()
                if other == name or not shared:
                    continue
                if there["epochs"] >= content["epochs"]:
                    kept = {run: stored for run, stored in kept.items() if run not in shared}
                else:
                    self._keep(other, there, there["runs"].keys() - shared)
            self._keep(name, content, kept)

    def _keep(self, name: str, content: Mapping[str, Any], runs: Iterable[str]) -> None:
        """Have a unit's file have these runs only, under the name that they give it."""
        kept = {run: stored for run, stored in content["runs"].items() if run in set(runs)}
        new = named(content["unit"], kept)
        if kept:
            self.units.store(new, {**content, "runs": kept})
        if new != name:
            self.units.remove(name)

    def summary(self) -> Summary:
        """Return where each unit stands, with an estimate of the time it still takes."""
        known, planned = self.known(), dict(self.units.about["units"])
        for one in known.values():
            if one.unit not in planned:
                runs = [run for run, other in known.items() if other.unit == one.unit]
                facts = {name: one.run[name] for name in ("algorithm", "batch_size")}
                planned[one.unit] = {"runs": runs, **facts}
        specs = self.stored_specs()
        epochs = max(int(spec["epochs"]) for spec in specs)
        units = [self._unit_summary(name, entry, epochs, known) for name, entry in planned.items()]
        units.sort(key=lambda unit: (unit.algorithm, unit.batch_size, unit.id))
        timed = tuple(replace(unit, seconds_left=_seconds_left(unit, units)) for unit in units)
        damaged = tuple(self.units.damaged.values())
        return Summary(str(specs[-1]["name"]), self.precision, timed, damaged)

    def _unit_summary(
        self, name: str, entry: Mapping[str, Any], epochs: int, known: Mapping[str, Known]
    ) -> UnitSummary:
        runs = entry["runs"]
        begun = {run: known[run] for run in runs if run in known}
        left = [run for run in runs if run not in begun or begun[run].finished < epochs]
        diverged = sum(one.run["diverged"] is not None for one in begun.values())
        seconds = sum(one.seconds for one in begun.values())
        checkpoints = Checkpoints.of(self.folder / "checkpoints", name, left)
        kept = min(checkpoints.last_epoch(), epochs) if left else epochs
        note = self.units.note(name) if left else {}
        told = note["epoch"] if isinstance(note.get("epoch"), int) and note.get("runs") == len(left) else 0
        unit = UnitSummary(
            id=name,
            algorithm=str(entry["algorithm"]),
            batch_size=int(entry["batch_size"]),
            runs=len(runs),
            epochs_done=min(max(told, kept), epochs),
            epochs=epochs,
            seconds=max(seconds, float(note.get("seconds") or 0.0)),
            diverged=max(diverged, int(note.get("diverged") or 0)),
            state="left" if left else "done",
            kept=kept,
        )
        where = self.units.whereabouts(name) if left else None
        return unit if where is None else replace(unit, state="running", where=where)


def _runs_of(content: Mapping[str, Any], file: str, *, finished: int) -> dict[str, Known]:
    """The runs of a unit that was checked."""
    unit, epochs, share = content["unit"], int(content["epochs"]), float(content["seconds"]) / len(content["runs"])
    return {run: Known(stored, unit, file, epochs, finished, share) for run, stored in content["runs"].items()}
