"""A study's folder: which runs there are, what each has measured, and who trains which unit. See `hotswap.store`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hotswap.errors import DamagedError, HotSwapError, StudyError
from hotswap.names import check_name
from hotswap.store import Checkpoints, Folder, read_record
from hotswap.store.checkpoints import named
from hotswap.store.folder import alone
from hotswap.studies.rows import Stored, arm_frame, checked_run, metric_columns, metric_frame, must_be, same_measures
from hotswap.studies.specification.plan import Unit, plan
from hotswap.studies.specification.stored import check_stored_names, stored_study
from hotswap.studies.specification.study import FINGERPRINT_VERSION, StudySpec
from hotswap.studies.summary import Summary, UnitSummary, seconds_left

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PRECISIONS", "Store", "check_fingerprint_version"]

PRECISIONS = ("fp32", "tf32", "fp64")
DTYPES = ("float32", "float64")
_IDENTITY = ("fingerprint", "precision", "dtype")


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
            must_be(whole and self.precision in PRECISIONS and self.dtype in DTYPES, "specs, precision or dtype")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(self.folder / "about.hotswap", f"it lacks {error}") from error
        check_fingerprint_version(about.get("fingerprint_version"), self.folder)
        for unit, *runs in planned:
            check_name(unit, "unit", str(self.folder))
            for run in runs:
                check_name(run, "run", str(self.folder))

    @classmethod
    def create(
        cls,
        folder: Path | str,
        study: StudySpec,
        *,
        precision: str,
        dtype: str = "float32",
        max_runs: int | None = None,
    ) -> Self:
        """Open the study's folder, making it where need be.

        A folder that holds the same study grows by what is asked beyond it: epochs, batch sizes, seeds, algorithms.

        Args:
            folder: The study's folder.
            study: The study to run.
            precision: How matrix products are computed, `fp32` or `tf32`.
            dtype: The type of the weights.
            max_runs: The most runs of a unit, as for `plan`.

        Raises:
            StudyError: The folder holds another study, or this one computed otherwise.
            SettingError: Two columns of the study's tables would have the same name.
        """
        metric_columns([study])  # before there is a folder that holds a study which cannot be
        folder = Path(folder)
        identity = {"fingerprint": study.fingerprint(), "precision": precision, "dtype": dtype}
        about = {**identity, "fingerprint_version": FINGERPRINT_VERSION, "specs": [study.to_dict()], "units": {}}
        Folder.create(folder, "study", about)
        with alone(folder):
            store = cls.open(folder)
            store.check(study, precision=precision, dtype=dtype)
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
        for table in (*came, *asked):
            check_stored_names(table, self.folder)
        return [*came, *asked]

    @property
    def epochs(self) -> int:
        """How many epochs each run is to have: the most that was asked for."""
        return max(int(spec["epochs"]) for spec in self.stored_specs())

    def check(self, study: StudySpec, *, precision: str, dtype: str) -> None:
        """Raise a StudyError for another study than the folder's, or the same one computed otherwise."""
        if study.fingerprint() != self.fingerprint:
            ours = stored_study(self.units.about["specs"][-1], self.folder)
            found = ours.differences(study)
            differ = (
                f": there {'; '.join(found[:3])}{f'; and {len(found) - 3} more' if found[3:] else ''}" if found else ""
            )
            raise StudyError(
                f"{self.folder} holds the study {ours.name!r} ({self.fingerprint[:12]}), not {study.name!r} "
                f"({study.fingerprint()[:12]}){differ}; choose another folder."
            )
        if (precision, dtype) != (self.precision, self.dtype):
            raise StudyError(
                f"{self.folder} holds results computed in {self.precision} with {self.dtype} weights, not in "
                f"{precision} with {dtype}; choose another folder, or keep to that."
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
                    self._check_unit(content, self.units.file(name))
                found[name] = content
            except DamagedError as error:
                self.units.is_damaged(name, error.why)
        self._checked = found
        return found

    def _check_unit(self, content: Mapping[str, Any], file: Path, *, finished: bool = True) -> None:
        try:
            identity = tuple(content[name] for name in _IDENTITY)
            epochs, runs, study = content["epochs"], content["runs"], content["study"]
            check_name(content["unit"], "unit", str(file))
            must_be(isinstance(study, dict) and isinstance(content["provenance"], dict), "study or provenance")
            check_stored_names(study, file)
            must_be(bool(runs) and epochs >= 1 and float(content["seconds"]) >= 0, "runs, epochs or seconds")
            for run, stored in runs.items():
                checked_run(run, stored, file)
                must_be(not finished or stored["rows"][-1][0] == epochs, f"a row of {run} at its last epoch, {epochs}")
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(file, f"it lacks {' '.join(str(error).split())}") from error
        if identity != (self.fingerprint, self.precision, self.dtype):
            raise StudyError(
                f"{file} is of another study, or computed otherwise ({', '.join(map(str, identity))}, and the folder's "
                f"{self.fingerprint}, {self.precision}, {self.dtype}); move it out of the folder."
            )

    def known(self) -> dict[str, Known]:
        """The measures so far of each run that was begun.

        Raises:
            StudyError: Two finished units disagree; the sentence names both.
        """
        found: dict[str, Known] = {}
        finished = self._finished()
        for name, content in finished.items():
            for run, stored in content["runs"].items():
                epochs, before = content["epochs"], found.get(run)
                if before is not None:
                    self._check_same(run, stored, name, before)
                if before is None or before.finished < epochs:
                    share = float(content["seconds"]) / len(content["runs"])
                    found[run] = Known(stored, content["unit"], name, epochs, epochs, share)
        for place in sorted((self.folder / "checkpoints").glob("*")):
            done = finished.get(place.name)
            checkpoints = Checkpoints(place)
            if done is not None and done["epochs"] >= checkpoints.last_epoch():
                continue
            begun = self._begun(checkpoints)
            if begun is None:
                continue
            share = float(begun["seconds"]) / len(begun["runs"])
            for run, stored in begun["runs"].items():
                before, epoch = found.get(run), int(begun["epoch"])
                if before is None or before.epoch < epoch:
                    was = 0 if before is None else before.finished
                    found[run] = Known(stored, begun["unit"], place.name, epoch, was, share)
        return found

    def _begun(self, checkpoints: Checkpoints) -> dict[str, Any] | None:
        """The record of the latest checkpoint of a unit, if it is of this study; weights are not looked at."""
        content = checkpoints.content()
        if content is None:
            return None
        try:
            whole = {**content, "epochs": content["epoch"], "provenance": {}}
            self._check_unit(whole, checkpoints.folder, finished=False)
        except (KeyError, StudyError):
            return None
        return content

    def _check_same(self, run: str, stored: Stored, name: str, before: Known) -> None:
        differ = same_measures(stored, before.run)
        if differ is not None:
            one, other = (self.units.file(file) for file in (before.file, name))
            raise StudyError(
                f"{one} and {other} disagree on the run {run}: {differ}. Move one of the two files out of the folder."
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
            run: {
                "epoch": known.epoch,
                "seconds": known.seconds,
                "finished": known.finished,
                "diverged": known.run["diverged"],
            }
            for run, known in sorted(self.known().items())
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

    @contextmanager
    def holding(self, unit: Unit) -> Iterator[None]:
        """Hold a unit, so that no other process trains it.

        Raises:
            UnitTaken: Another process holds it.
        """
        with self.units.holding(unit.id):
            yield

    def finish(self, content: Mapping[str, Any]) -> None:
        """Store what a finished unit has measured, and what did it. A run is in one file, that with the most epochs.

        Raises:
            StudyError: A run of the unit has no row at its last epoch.
        """
        name = named(content["unit"], content["runs"])
        self._check_unit(content, self.units.file(name))
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
        units = [self._unit_summary(name, entry, known) for name, entry in planned.items()]
        units.sort(key=lambda unit: (unit.algorithm, unit.batch_size, unit.id))
        timed = tuple(replace(unit, seconds_left=seconds_left(unit, units)) for unit in units)
        damaged = tuple(self.units.damaged.values())
        return Summary(str(self.stored_specs()[-1]["name"]), self.precision, timed, damaged)

    def _unit_summary(self, name: str, entry: Mapping[str, Any], known: Mapping[str, Known]) -> UnitSummary:
        runs, epochs = entry["runs"], self.epochs
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


def check_fingerprint_version(version: object, file: Path) -> None:
    """Raise a StudyError if a file's fingerprints were computed by a rule that this version does not know."""
    if version != FINGERPRINT_VERSION:
        raise StudyError(
            f"{file} was written by a newer hotswap (its fingerprints are of version {version}, and this one knows "
            f"{FINGERPRINT_VERSION}); update hotswap."
        )
