"""A folder as a few files of a limited size, and back: for machines from which only such files can be taken."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

from hotswap.files import replacing

__all__ = ["pack", "unpack"]

MIB = 2**20
NAMES = "part-*.bin"


def pack(files: Iterable[Path], folder: Path, *, part: float = 15.5, most: float = 60.0) -> list[Path]:
    """Write files into compressed parts of at most `part` MiB; returns those that have no room in `most` MiB.

    The files that come first are taken first. Parts that an earlier call has left in the folder are removed.
    """
    whole, left = bytearray(), []
    for file in files:
        member = _compressed(file)
        if len(whole) + len(member) <= most * MIB:
            whole += member
        else:
            left.append(file)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(NAMES):
        old.unlink()
    size = int(part * MIB)
    for number, begin in enumerate(range(0, len(whole), size)):
        with replacing(folder / f"part-{number:02}.bin") as temporary:
            temporary.write_bytes(whole[begin : begin + size])
    return left


def _compressed(file: Path) -> bytes:
    """A file as a compressed archive; several of them one after the other are an archive, too."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(file, arcname=file.name)
    return gzip.compress(stream.getvalue(), compresslevel=6, mtime=0)


def unpack(folder: Path, target: Path) -> list[str]:
    """Put the files of all parts into a folder; returns their names."""
    whole = b"".join(path.read_bytes() for path in sorted(folder.glob(NAMES)))
    if not whole:
        return []
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:gz", ignore_zeros=True) as archive:
        archive.extractall(target, filter="data")
        return archive.getnames()
