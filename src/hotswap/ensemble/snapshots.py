"""Snapshots of an ensemble on disk, from which training continues exactly: checksummed, the last two kept.

A snapshot is a safetensors file (numbers only, nothing that could run) and a file beside it with its SHA-256, written
last: without it the snapshot counts as missing. One whose checksum does not match is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hotswap.files import replacing, write_text

__all__ = ["Snapshot", "load_kept", "load_latest", "save"]

KEPT = 2
FORMAT = 4  # how tensors are laid out and named; the fields of the bandit's state have a prefix since 4
READABLE = (3, FORMAT)


class Snapshot(NamedTuple):
    """Where an ensemble stood after so many epochs."""

    epoch: int
    tensors: dict[str, Tensor]
    notes: dict[str, Any]


def save(
    folder: Path, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], *, keep: bool = False
) -> Path:
    """Write a snapshot and remove all but the last two. `keep`: never remove this one."""
    path = folder / f"epoch-{epoch:06d}{'-kept' if keep else ''}.safetensors"
    with replacing(path) as temporary:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(plain, temporary, metadata={"notes": json.dumps({**notes, "epoch": epoch, "format": FORMAT})})
        digest = _digest(temporary)
    write_text(_sum(path), digest)
    for old in sorted(folder.glob("epoch-??????.safetensors"))[:-KEPT]:
        _sum(old).unlink(missing_ok=True)  # first: a snapshot without its sum counts as missing
        old.unlink(missing_ok=True)
    return path


def load_latest(folder: Path, report: Callable[[str], None]) -> Snapshot | None:
    """The latest snapshot that is whole; `report` is told of any that is not."""
    found = sorted(folder.glob("epoch-*.safetensors"), key=lambda path: path.name[: len("epoch-000000")], reverse=True)
    for path in found:
        if not _sum(path).exists():
            continue  # its writing was cut short
        try:
            if _sum(path).read_text(encoding="utf-8") == _digest(path):
                return _read(path)
            why = "it is damaged: its checksum does not match"
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            why = str(error)
        report(f"The checkpoint {path.name} cannot be used ({why}); going back to the one before it.")
    return None


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
        notes = json.loads(file.metadata()["notes"])
        written = notes.pop("format", 1)
        if written not in READABLE:
            raise ValueError("another version of hotswap wrote it")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Snapshot(notes.pop("epoch"), _renamed(tensors) if written == 3 else tensors, notes)


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of format 3 as they are called now: the bandit's had no prefix, and the reward had no state."""
    if "rewards" not in tensors:
        return tensors  # no bandit
    bandit = ("rewards", "counts", "step")
    kept = {f"bandit/{name}" if name in bandit else name: tensor for name, tensor in tensors.items()}
    runs = len(tensors["rewards"])
    none = torch.zeros(runs, dtype=torch.float64)
    return {**kept, "reward_scale": none, "bandit_version": torch.ones(runs, dtype=torch.int64)}


def _sum(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
