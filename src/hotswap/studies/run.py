"""Training a study, unit by unit: resumable, stoppable, here or elsewhere, and never the same unit twice."""

from __future__ import annotations

import math
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from hotswap.data import Dataset
from hotswap.extensions import loaded_texts
from hotswap.store import Checkpoints, Folder, occasion
from hotswap.store.folder import ABOUT
from hotswap.studies.folder import Store
from hotswap.studies.study import StudySpec, Unit
from hotswap.studies.training import Held, RunOptions, Training, check_size, set_up
from hotswap.work import InThisProcess, Listener, Outcome, Place, Setting, UnitError, do_all
from hotswap.work import Unit as Named

__all__ = ["run_study"]

NOTED = 0.2  # seconds between two notes of how far a unit is
WAITING = "waiting for room"


def run_study(
    store: Store,
    study: StudySpec,
    data: Dataset,
    options: RunOptions,
    listener: Listener,
    asked_to_stop: Callable[[], bool] = lambda: False,
    *,
    elsewhere: Callable[[Setting], Place] | None = None,
    threads: int = 1,
    storage: Path | None = None,
) -> Outcome:
    """Train every unit that is not finished and that no other process has.

    `asked_to_stop` is called after every epoch; once it returns True, a checkpoint is written and training stops.

    Args:
        store: The study's folder.
        study: The study to train, or a part of it.
        data: Its data set.
        options: The options of the training.
        listener: Is told of the progress.
        asked_to_stop: Says whether to stop.
        elsewhere: Makes the place where units are trained, if that is not this process.
        threads: In how many threads a unit is trained elsewhere.
        storage: The folder in which processes that do not see the study's folder have checkpoints.
    """
    check_size(data, study)
    deadline = math.inf if options.stop_after is None else time.monotonic() + 60 * options.stop_after

    def over() -> bool:
        return time.monotonic() >= deadline or asked_to_stop()

    work = StudyWork(study.to_dict(), data, options, store.folder.resolve(), storage)
    keeper = _StudyKeeper(store, study, options, listener, elsewhere=elsewhere is not None)
    place: Place
    if elsewhere is None:
        _ = work.prepared  # before any unit is held, since it may refuse the study
        place = InThisProcess(lambda shared, unit, stop: train_unit(shared, unit, stop, keeper.show), work, over)
    else:
        place = elsewhere(Setting(train_unit, work, threads, loaded_texts()))
    listener.planned(0, len(keeper.units))
    for sentence in store.units.damaged.values():
        listener.say(sentence)
    return do_all([Named(name, unit) for name, unit in keeper.units.items()], place, keeper, over)


@dataclass(frozen=True)
class StudyWork:
    """The objects and options that all units of a command share.

    Attributes:
        study: The study, as `StudySpec.to_dict` gave it.
        data: The data set.
        options: How to train.
        folder: The study's folder, which not every process sees.
        storage: The folder for checkpoints instead of the study's folder, if there is one.
    """

    study: dict[str, Any]
    data: Dataset = field(repr=False)
    options: RunOptions
    folder: Path
    storage: Path | None

    @cached_property
    def prepared(self) -> tuple[StudySpec, Held]:
        """The study, and its data on the device, which a process keeps for all units of the command."""
        study = StudySpec.from_dict(self.study)
        return study, set_up(study, self.data.with_own_labels(), self.options)


Hear = Callable[[Unit, dict[str, Any]], None]
"""Is told of each note on a unit."""


def train_unit(
    work: StudyWork, unit: Unit, stopping: Callable[[], bool], hear: Hear | None = None
) -> dict[str, Any] | None:
    """Train a unit in whatever process this is: what it has measured and the checkpoints to keep, or None if stopped.

    Checkpoints go to the study's folder where this process sees it, or to the storage. Without either, those that are
    kept for good come back with the result.
    """
    study, held = work.prepared
    sees = (work.folder / ABOUT).is_file()
    folder = Folder(work.folder, {}) if sees else None
    names = [run.id for run in unit.runs]
    with tempfile.TemporaryDirectory() as nowhere:
        place = work.storage or (work.folder / "checkpoints" if sees else Path(nowhere))
        checkpoints = Checkpoints.of(place, unit.id, names)
        notes = _Notes(unit, folder, hear)
        content = Training(study, unit, held, work.options, checkpoints, notes, stopping).run()
        kept = {} if content is None or place == work.folder / "checkpoints" else checkpoints.kept_files()
    if hear is None and held.tensors.train_x.is_cuda:
        torch.cuda.empty_cache()  # for processes that share the GPU
    return None if content is None else {"content": content, "kept": kept}


class _Notes:
    """Leaves notes on a unit in the study's folder, where this process sees it; `hear` gets each note at once.

    See `hotswap.studies.training.Progress`.
    """

    def __init__(self, unit: Unit, folder: Folder | None, hear: Hear | None) -> None:
        self._unit, self._folder, self._hear, self._told = unit, folder, hear, 0.0
        self._note: dict[str, Any] = {"said": [], "began": uuid4().hex}
        if hear is None:
            self._note["where"] = f"{socket.gethostname()}, process {os.getpid()}"

    def say(self, text: str) -> None:
        self._note["said"].append(text)  # the next note has it

    def unit_begins(self, epoch: int, epochs: int) -> None:
        runs = len(self._unit.runs)
        self._note |= {"first": epoch, "epoch": epoch, "epochs": epochs, "runs": runs, "diverged": 0, "seconds": 0.0}
        self._pass_on()

    def epoch_done(self, epoch: int, diverged: int, seconds: float) -> None:
        self._note |= {"epoch": epoch, "diverged": diverged, "seconds": self._note["seconds"] + seconds}
        self._pass_on()

    def _pass_on(self) -> None:
        if self._folder is not None and time.monotonic() - self._told >= NOTED:
            self._told = time.monotonic()
            self._folder.tell(self._unit.id, **self._note)
        if self._hear is not None:
            self._hear(self._unit, self._note)


class _StudyKeeper:
    """Holds units and stores what comes of them. See `hotswap.work.Keeper`."""

    def __init__(
        self, store: Store, study: StudySpec, options: RunOptions, listener: Listener, *, elsewhere: bool
    ) -> None:
        self.units = {unit.id: unit for unit in store.left(study, options.max_runs)}
        self._store, self._study, self._listener, self._elsewhere = store, study, listener, elsewhere
        self._seen: dict[str, tuple[str, int, int]] = {}

    def holding(self, unit: Named) -> AbstractContextManager[object]:
        return self._store.holding(unit.payload)

    def begins(self, unit: Named) -> bool:
        if self._elsewhere:
            self._store.units.tell(unit.name, where=WAITING)
        return not self._store.is_finished(unit.payload, self._study.epochs)

    def look(self, names: Iterable[str]) -> None:
        for name in names if self._elsewhere else ():
            self.show(self.units[name], self._store.units.note(name))

    def show(self, unit: Unit, note: dict[str, Any]) -> None:
        """Tell the listener what a note has that it has not been told yet."""
        if "began" not in note:
            return
        began, epoch, said = self._seen.get(unit.id, ("", 0, 0))
        if began != note["began"]:
            epoch, said = note["first"], 0
            self._listener.begins(unit.id, epoch, note["epochs"], "epochs")
        for text in note["said"][said:]:
            self._listener.say(text)
        if note["epoch"] > epoch:
            runs = len(unit.runs)
            self._listener.reaches(unit.id, note["epoch"], runs - note["diverged"], runs)
        self._seen[unit.id] = note["began"], note["epoch"], len(note["said"])

    def done(self, unit: Named, result: dict[str, Any]) -> None:
        content = result["content"]
        content["provenance"] |= occasion()  # a worker's own command line says nothing
        names = [run.id for run in unit.payload.runs]
        Checkpoints.of(self._store.folder / "checkpoints", unit.name, names).add_files(result["kept"])
        self._store.finish(content)
        self._end(unit, "finished")

    def stopped(self, unit: Named) -> None:
        self._end(unit, "put aside")

    def failed(self, unit: Named, error: UnitError) -> None:
        path = self._store.units.fail(unit.name, error.whole)
        self._listener.say(f"All that was said of {unit.name} is in {path}.")
        self._end(unit, "put aside")

    def say(self, text: str) -> None:
        self._listener.say(text)

    def _end(self, unit: Named, how: str) -> None:
        self.look([unit.name])
        self._listener.ends(unit.name, how)
