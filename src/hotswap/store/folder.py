"""A folder of units: finished ones as files, running ones under locks that the system releases with their process."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

from filelock import FileLock, Timeout

from hotswap.errors import DamagedError, StudyError, UnitTaken
from hotswap.files import explained, replacing
from hotswap.store.records import SUFFIX, read_record, write_record

__all__ = ["ABOUT", "Folder", "Kind"]

ABOUT = f"about{SUFFIX}"
EARLIER = "ledger.sqlite"
PATIENCE = 30.0  # seconds to wait for another process that writes to the folder; each takes milliseconds
GLANCE = 0.25  # seconds to insist on a unit's lock: a process that asks whether it is free holds it for an instant

Kind = Literal["study", "benchmark"]


class Folder:
    """A folder, open. Made by `Folder.create` or `Folder.open`; nothing has to be closed.

    Attributes:
        path: The folder.
        about: The record of its contents: the kind, and whatever the kind adds.
        damaged: By name of a unit's file, what is wrong with it, as far as `units` has seen.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        self.damaged: dict[str, str] = {}
        self._seen: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}

    @classmethod
    def create(cls, path: Path, kind: Kind, about: Mapping[str, Any]) -> Self:
        """Open a folder, making it where need be.

        Raises:
            StudyError: It holds something of another kind, or cannot be written to.
        """
        with alone(path):
            if not (path / ABOUT).exists():
                _refuse_earlier(path)
                write_record(path / ABOUT, {"kind": kind, **about})
        return cls.open(path, kind)

    @classmethod
    def open(cls, path: Path, kind: Kind) -> Self:
        """Open a folder that is there.

        Raises:
            StudyError: It holds nothing, something of another kind, or is damaged.
        """
        if not (path / ABOUT).is_file():
            _refuse_earlier(path)
            command = "study" if kind == "study" else "bench"
            raise StudyError(f"{path} holds no {kind}; `hotswap {command} run` starts one.")
        about = read_record(path / ABOUT)
        if about.get("kind") != kind:
            raise StudyError(f"{path} holds a {about.get('kind')}, and not a {kind}; choose another folder.")
        return cls(path, about)

    @staticmethod
    def kind_of(path: Path) -> str | None:
        """The kind of the folder's contents, such as a study; None if hotswap has not made the folder."""
        try:
            return str(read_record(path / ABOUT).get("kind"))
        except StudyError:
            return None

    def change(self, about: Mapping[str, Any]) -> None:
        """Write anew what the folder is of. Call it in `alone`, after reading the folder again."""
        self.about = {**self.about, **about}
        write_record(self.path / ABOUT, self.about)

    # Finished units.

    def units(self) -> dict[str, dict[str, Any]]:
        """The record of each finished unit, by the name of its file; `damaged` says why a file cannot be used.

        A file that was read before and has not changed since is not read again.
        """
        seen = {}
        self.damaged = {}
        with explained(self.path):
            files = sorted(self._units.glob(f"*{SUFFIX}"))
        for path in files:
            name = path.name.removesuffix(SUFFIX)
            try:
                status = path.stat()
                stamp = (status.st_mtime_ns, status.st_size)
                known = self._seen.get(name)
                seen[name] = known if known is not None and known[0] == stamp else (stamp, read_record(path))
            except DamagedError as error:
                self.damaged[name] = str(error)
            except FileNotFoundError:
                continue  # another process has just put something else in its place
        self._seen = seen
        return {name: content for name, (_, content) in seen.items()}

    def is_damaged(self, name: str, why: str) -> None:
        """Note that a file whose digests match cannot be used all the same."""
        self.damaged[name] = str(DamagedError(self.file(name), why))

    def file(self, name: str) -> Path:
        """The file of a finished unit."""
        return self._units / f"{_short(name)}{SUFFIX}"

    def store(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a finished unit, in the place of what was there under its name."""
        write_record(self.file(name), content)

    def remove(self, name: str) -> None:
        """Take a finished unit away: another one has what it had."""
        with explained(self.path):
            self.file(name).unlink(missing_ok=True)

    @property
    def _units(self) -> Path:
        return self.path / "units"

    # Running units.

    @contextmanager
    def holding(self, unit: str) -> Iterator[None]:
        """Hold a unit, so that no other process trains it; the system lets go of it however this process ends.

        Raises:
            UnitTaken: Another process holds it.
        """
        lock = FileLock(self._lock(unit))
        with explained(self.path):
            self._lock(unit).parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=GLANCE, poll_interval=0.01)
            except Timeout:
                raise UnitTaken(unit, self.note(unit).get("holder")) from None
        try:
            self._note(unit, {"holder": os.getpid()})
            yield
        finally:
            lock.release()

    def is_held(self, unit: str) -> bool:
        """True if some process trains the unit."""
        return _is_locked(self._lock(unit))

    def tell(self, unit: str, **note: Any) -> None:
        """Leave a note on a unit that this process trains or has trained; it goes to whoever asks for `note`.

        What was noted before stays, but for what is said anew. A note is worth no error and no wait for the disk.
        """
        self._note(unit, {**self.note(unit), **note})

    def _note(self, unit: str, note: dict[str, Any]) -> None:
        path = self._lock(unit).with_suffix(".json")
        with suppress(OSError):
            part = path.with_name(f".{path.name}.{os.getpid()}")
            part.write_text(json.dumps(note), encoding="utf-8")
            part.replace(path)

    def note(self, unit: str) -> dict[str, Any]:
        """The last note on a unit. The process that trains the unit left it, if the unit is held."""
        with suppress(OSError, ValueError, RecursionError):
            note = json.loads(self._lock(unit).with_suffix(".json").read_text(encoding="utf-8")[:10_000])
            return note if isinstance(note, dict) else {}
        return {}

    def whereabouts(self, unit: str) -> str | None:
        """The place where a unit is trained, in words; None if no process trains it."""
        if not self.is_held(unit):
            return None
        note = self.note(unit)
        return str(note.get("where") or f"process {note.get('holder', 'unknown')}")

    def fail(self, unit: str, why: str) -> Path:
        """Keep all that was said of a unit that failed; returns where."""
        path = self._lock(unit).with_suffix(".error")
        with explained(self.path), replacing(path) as part:
            part.write_text(why, encoding="utf-8")
        return path

    def _lock(self, unit: str) -> Path:
        return self.path / "running" / f"{_short(unit)}.lock"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only process that changes what a folder is of, or which unit has which run."""
    lock = FileLock(path / "running" / ".folder.lock")
    with explained(path):
        (path / "running").mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise StudyError(f"Another process has kept {path} busy for {PATIENCE:.0f} s; try again.") from None
    try:
        yield
    finally:
        lock.release()


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:
        return False  # a folder that is read only: no process could hold a lock in it
    lock.release()
    return False


def _refuse_earlier(path: Path) -> None:
    if (path / EARLIER).exists():
        raise StudyError(
            f"{path} has a {EARLIER}, from before hotswap's first release, and this version does not read it; export "
            "it with the version that wrote it, or choose another folder."
        )


def _short(name: str) -> str:
    """The name, or as much of it as the name of a file may have, with a digest of the rest."""
    if not re.fullmatch(r"[A-Za-z0-9_.+-]+", name):
        raise StudyError(f"{name!r} cannot be the name of a unit's file.")
    return name if len(name) <= 150 else f"{name[:150]}-{sha256(name.encode()).hexdigest()[:8]}"
