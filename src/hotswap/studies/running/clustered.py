"""Training a study on a Ray cluster: the same units, options and ledger as on one machine. See `hotswap.cluster`."""

from __future__ import annotations

import errno
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from hotswap.cluster import Checkpoint, Outcome, Piece, Stored, Where
from hotswap.cluster.dispatch import Dispatch
from hotswap.cluster.joining import Joined
from hotswap.cluster.storage import Storage
from hotswap.data import Dataset
from hotswap.ensemble.snapshots import latest_bytes, save_bytes
from hotswap.errors import StudyError, UnitTaken
from hotswap.extensions import loaded_texts
from hotswap.files import write_text
from hotswap.studies.running.assemble import check_size
from hotswap.studies.running.keeping import FolderKeeper
from hotswap.studies.running.posting import Post, StudyWork
from hotswap.studies.running.train import Listener, RunOptions
from hotswap.studies.specification.plan import Unit, plan
from hotswap.studies.specification.study import StudySpec
from hotswap.studies.storage.one_writer import only_writer
from hotswap.studies.storage.store import Store
from hotswap.studies.storage.unit_locks import WAITING

__all__ = ["run_on_cluster"]

_KEPT = 2  # checkpoints of a unit, as in a folder
_POSTS = {
    "keeper": ("record", "diverged", "finish"),
    "listener": ("say", "unit_begins", "epoch_done", "unit_ends"),
}


def run_on_cluster(
    store: Store,
    study: StudySpec,
    data: Dataset,
    options: RunOptions,
    listener: Listener,
    cluster: Joined,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train every unit that is not finished, as `run_study` does, on a cluster.

    Raises:
        StudyError: Another command writes to the folder.
    """
    check_size(data, study)
    deadline = math.inf if options.stop_after is None else time.monotonic() + 60 * options.stop_after
    on_worker = replace(options, stop_after=None)  # the command looks at its clock
    work = StudyWork(uuid4().hex, study.to_dict(), on_worker, cluster.per_unit.threads, loaded_texts())
    units = {unit.id: unit for unit in plan(study, options.max_runs) if store.finished(unit) < study.epochs}
    with only_writer(store.folder), _StudyKeeper(store, study, units, listener) as keeper:
        dispatch = Dispatch(
            cluster,
            work,
            data,
            keeper,
            folder=_storage_folder(store),
            asked_to_stop=lambda: time.monotonic() >= deadline or asked_to_stop(),
        )
        return dispatch.run(Piece(unit.id, unit) for unit in units.values())


def _storage_folder(store: Store) -> str:
    """A folder's own part of a storage: two folders may hold the same study."""
    path = store.folder / "checkpoints" / ".storage"
    if not path.exists():
        write_text(path, f"{store.fingerprint}-{uuid4().hex[:8]}")
    return path.read_text(encoding="utf-8")


class _StudyKeeper:
    """Writes a study's folder. See `hotswap.cluster.Keeper` for the methods."""

    def __init__(self, store: Store, study: StudySpec, units: dict[str, Unit], listener: Listener) -> None:
        self._store, self._study, self._units, self._listener = store, study, units, listener
        self._held: dict[str, ExitStack] = {}
        self._annotate: dict[str, Callable[[str], None]] = {}
        self._keepers: dict[str, FolderKeeper] = {}

    def __enter__(self) -> _StudyKeeper:
        return self

    def __exit__(self, *_: object) -> None:
        for unit in list(self._held):
            self._let_go(unit)

    def take_up(self, unit: str) -> bool:
        held = ExitStack()
        try:
            self._annotate[unit] = held.enter_context(self._store.unit_lock(self._units[unit]))
        except UnitTaken as taken:
            self._listener.say(str(taken))
            return False
        self._held[unit] = held
        self._annotate[unit](WAITING)
        self._keepers[unit] = FolderKeeper(self._store, self._units[unit])
        return True

    def checkpoints(self, unit: str) -> Sequence[Checkpoint | Stored]:
        folder = self._keepers[unit].folder
        found: list[Checkpoint | Stored] = [stored for _, stored in _pointers(folder)]
        here = latest_bytes(folder, self._listener.say)
        if here is not None:
            found.append(Checkpoint(*here))
        return sorted(found, key=lambda checkpoint: checkpoint.epoch, reverse=True)

    def begins(self, unit: str, where: Where) -> None:
        self._annotate[unit](str(where))

    def together(self) -> AbstractContextManager[object]:
        return self._store.transaction()

    def receive(self, unit: str, message: object) -> None:
        if not isinstance(message, Post) or message.method not in _POSTS[message.to]:
            raise StudyError(f"A worker posted {message!r} of {unit}, which nobody asked for.")
        arguments = message.arguments
        if message.to == "listener":
            mine = () if message.method == "say" else (self._units[unit],)
            getattr(self._listener, message.method)(*mine, *arguments, **message.keywords)
            return
        if message.method == "finish":  # the worker's own command line says nothing
            epochs, provenance = arguments
            arguments = (epochs, {**provenance, "command": shlex.join(["hotswap", *sys.argv[1:]])})
        getattr(self._keepers[unit], message.method)(*arguments, **message.keywords)

    def keep(self, unit: str, checkpoint: Checkpoint | Stored) -> None:
        folder = self._keepers[unit].folder
        try:
            if isinstance(checkpoint, Checkpoint):
                save_bytes(folder, checkpoint.epoch, checkpoint.data, keep=checkpoint.keep)
            else:
                _point_to(folder, checkpoint)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise StudyError(
                f"The disk is full: the checkpoint of {unit} after epoch {checkpoint.epoch} could not be written. What "
                "was stored before is safe; make room and run the same command again to go on."
            ) from None

    def interrupted(self, unit: str, why: str) -> None:
        self._annotate[unit](WAITING)
        self._listener.say(f"{unit} was interrupted: {why}. It goes on from its last checkpoint.")

    def put_down(self, unit: str, *, finished: bool, error: str = "") -> None:
        failure = self._store.folder / "units" / f"{unit}.error"
        if error:
            write_text(failure, error)
            self._listener.unit_ends(self._units[unit], finished=False)
        else:
            failure.unlink(missing_ok=True)
        self._let_go(unit)

    def _let_go(self, unit: str) -> None:
        self._annotate.pop(unit)("")
        self._held.pop(unit).close()
        self._keepers.pop(unit)


def _pointers(folder: Path) -> list[tuple[Path, Stored]]:
    """The checkpoints that lie elsewhere, the latest first."""
    found = []
    for path in sorted(folder.glob("epoch-??????.stored"), reverse=True):
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found.append((path, Stored(**known)))
    return found


def _point_to(folder: Path, stored: Stored) -> None:
    """Note where a checkpoint lies, and forget all but the last two, here and there."""
    write_text(folder / f"epoch-{stored.epoch:06d}.stored", json.dumps(asdict(stored)))
    pointers = _pointers(folder)
    for path, _ in pointers[_KEPT:]:
        path.unlink()
    kept = {one.name for _, one in pointers[:_KEPT] if one.storage == stored.storage}
    Storage(stored.storage).forget(stored.name.rpartition("/")[0], kept=kept)
