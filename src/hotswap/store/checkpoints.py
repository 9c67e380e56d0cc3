"""Checkpoints of a unit, from which training goes on exactly: the last two, and those that are kept for good."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hotswap.errors import DamagedError, StudyError
from hotswap.store.records import SUFFIX, read_record, read_tensors, write_record

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Checkpoint", "Checkpoints"]

LAST = 2
_NAME = re.compile(rf"epoch-(\d{{6,9}})(-kept)?\{SUFFIX}")


class Checkpoint(NamedTuple):
    """The state of a unit after so many epochs: its measures until then, and its tensors."""

    epoch: int
    content: dict[str, Any]
    tensors: dict[str, Tensor]


class Checkpoints:
    """The checkpoints of one unit, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, place: Path, unit: str, runs: Iterable[str]) -> Checkpoints:
        """The checkpoints of a unit with these runs. A unit of the same name with other runs has another folder."""
        return cls(place / named(unit, runs))

    def save(
        self, epoch: int, content: Mapping[str, Any], tensors: Mapping[str, Tensor], *, keep: bool = False
    ) -> None:
        """Write a checkpoint and remove all but the last two. `keep`: never remove this one."""
        from safetensors.torch import save  # noqa: PLC0415  # a reader of results needs no torch

        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        path = self.folder / f"epoch-{epoch:06d}{'-kept' if keep else ''}{SUFFIX}"
        write_record(path, {**content, "epoch": epoch}, save(plain))
        for _, old in [one for one in self._files() if not one[1].stem.endswith("-kept")][LAST:]:
            old.unlink(missing_ok=True)

    def last_epoch(self) -> int:
        """The epoch of the latest checkpoint; 0 if there is none."""
        return next((epoch for epoch, _ in self._files()), 0)

    def latest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """The latest checkpoint that is whole; `report` is told of any that is not."""
        for _, path in self._files():
            try:
                return _read(path)
            except StudyError as error:
                report(f"The checkpoint {path.name} cannot be used ({str(error).rstrip('.')}); going on without it.")
        return None

    def content(self) -> dict[str, Any] | None:
        """The record, without tensors, of the latest checkpoint whose record is whole; None if there is none."""
        for _, path in self._files():
            try:
                return read_record(path)
            except StudyError:
                continue
        return None

    def kept(self, epoch: int) -> Checkpoint | None:
        """The checkpoint that was kept of an epoch, if it is there and whole."""
        path = self.folder / f"epoch-{epoch:06d}-kept{SUFFIX}"
        try:
            return _read(path) if path.is_file() else None
        except StudyError:
            return None

    def kept_files(self) -> dict[str, bytes]:
        """The files of checkpoints that are kept for good, by name: they travel with the unit's results."""
        return {path.name: path.read_bytes() for _, path in self._files() if path.stem.endswith("-kept")}

    def add_files(self, files: Mapping[str, bytes]) -> None:
        """Write files that `kept_files` gave elsewhere."""
        from hotswap.files import explained, replacing  # noqa: PLC0415

        for name, data in files.items():
            if _NAME.fullmatch(name):
                with explained(self.folder), replacing(self.folder / name) as part:
                    part.write_bytes(data)

    def _files(self) -> list[tuple[int, Path]]:
        """Epochs and files, the latest first; of one epoch, the file that is kept comes last."""
        names = [(_NAME.fullmatch(path.name), path) for path in self.folder.glob(f"epoch-*{SUFFIX}")]
        found = [(int(name[1]), not name[2], path) for name, path in names if name]
        return [(epoch, path) for epoch, _, path in sorted(found, reverse=True)]


def named(unit: str, runs: Iterable[str]) -> str:
    """The name, without an ending, of the files of a unit with these runs."""
    return f"{unit}-{sha256(chr(10).join(sorted(runs)).encode()).hexdigest()[:8]}"


def _read(path: Path) -> Checkpoint:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load  # noqa: PLC0415

    content = read_record(path)
    try:
        return Checkpoint(int(content.pop("epoch")), content, load(read_tensors(path)))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(path, " ".join(str(error).split())) from error
