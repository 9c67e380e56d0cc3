"""Snapshots of an ensemble on disk, from which training continues exactly: checksummed, the last two kept.

A snapshot is a safetensors file (numbers only, nothing that could run) and a file beside it with its SHA-256, written
last: without it the snapshot counts as missing. One whose checksum does not match is passed over for the one before.
The same as bytes, for who trains without a folder: `to_bytes` and `from_bytes`, and `save_bytes` for who has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import save as as_bytes
from safetensors.torch import save_file
from torch import Tensor

from hotswap.files import replacing, write_text

__all__ = ["Snapshot", "from_bytes", "latest_bytes", "load_kept", "load_latest", "save", "save_bytes", "to_bytes"]

KEPT = 2
FORMAT = 4  # how tensors are laid out and named


class Snapshot(NamedTuple):
    """Where an ensemble stood after so many epochs."""

    epoch: int
    tensors: dict[str, Tensor]
    notes: dict[str, Any]


def save(
    folder: Path, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], *, keep: bool = False
) -> Path:
    """Write a snapshot and remove all but the last two. `keep`: never remove this one."""
    return _write(folder, epoch, lambda path: save_file(_plain(tensors), path, _metadata(epoch, notes)), keep)


def to_bytes(epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> bytes:
    """The bytes that `save` would write to the file of a snapshot."""
    return as_bytes(_plain(tensors), _metadata(epoch, notes))


def from_bytes(data: bytes) -> Snapshot:
    """The snapshot that `to_bytes` made bytes of.

    Raises:
        ValueError: They are of another version, or not of a snapshot.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return _unpack(load_bytes(data), json.loads(header["__metadata__"]["notes"]))
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"it is damaged: {error}") from error


def save_bytes(folder: Path, epoch: int, data: bytes, *, keep: bool = False) -> Path:
    """Write a snapshot that `to_bytes` made, as `save` does."""
    return _write(folder, epoch, lambda path: path.write_bytes(data), keep)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _metadata(epoch: int, notes: Mapping[str, Any]) -> dict[str, str]:
    return {"notes": json.dumps({**notes, "epoch": epoch, "format": FORMAT})}


def _write(folder: Path, epoch: int, write: Callable[[Path], object], keep: bool) -> Path:
    path = folder / f"epoch-{epoch:06d}{'-kept' if keep else ''}.safetensors"
    with replacing(path) as temporary:
        write(temporary)
        digest = _digest(temporary)
    write_text(_sum(path), digest)
    for old in sorted(folder.glob("epoch-??????.safetensors"))[:-KEPT]:
        _sum(old).unlink(missing_ok=True)  # first: a snapshot without its sum counts as missing
        old.unlink(missing_ok=True)
    return path


def load_latest(folder: Path, report: Callable[[str], None]) -> Snapshot | None:
    """The latest snapshot that is whole; `report` is told of any that is not."""
    return next((snapshot for _, snapshot in _whole(folder, report)), None)


def latest_bytes(folder: Path, report: Callable[[str], None]) -> tuple[int, bytes] | None:
    """The epoch and the bytes of the snapshot that `load_latest` loads."""
    return next(((snapshot.epoch, path.read_bytes()) for path, snapshot in _whole(folder, report)), None)


def _whole(folder: Path, report: Callable[[str], None]) -> Iterator[tuple[Path, Snapshot]]:
    """The snapshots that are whole, the latest first."""
    found = sorted(folder.glob("epoch-*.safetensors"), key=lambda path: path.name[: len("epoch-000000")], reverse=True)
    for path in found:
        if not _sum(path).exists():
            continue  # its writing was cut short
        try:
            if _sum(path).read_text(encoding="utf-8") == _digest(path):
                yield path, _read(path)
                continue
            why = "it is damaged: its checksum does not match"
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            why = str(error)
        report(f"The checkpoint {path.name} cannot be used ({why}); going back to the one before it.")


def load_kept(folder: Path, epoch: int) -> Snapshot | None:
    """The snapshot that was kept of an epoch, if it is there and whole."""
    path = folder / f"epoch-{epoch:06d}-kept.safetensors"
    if not _sum(path).exists() or _sum(path).read_text(encoding="utf-8") != _digest(path):
        return None
    try:
        return _read(path)
    except ValueError:
        return None


def _read(path: Path) -> Snapshot:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _unpack(tensors, json.loads(file.metadata()["notes"]))


def _unpack(tensors: dict[str, Tensor], notes: dict[str, Any]) -> Snapshot:
    if notes.pop("format", None) != FORMAT:
        raise ValueError("another version of hotswap wrote it, which is not read")
    return Snapshot(notes.pop("epoch"), tensors, notes)


def _sum(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
