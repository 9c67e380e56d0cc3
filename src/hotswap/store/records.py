"""The format of every stored file: one line, JSON, and tensors where there are some.

    hotswap 1 JSON-BYTES JSON-SHA256 TENSOR-BYTES TENSOR-SHA256
    {...}                                   NaN and infinities as Python writes them
    (tensors, as safetensors has them)

The line gives sizes and digests of both parts, so that no byte of a file can change unnoticed. Nothing in a file is
ever run. Limits apply before anything is read or parsed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hotswap.errors import DamagedError, StudyError
from hotswap.files import explained, replacing

__all__ = ["MOST_JSON", "NESTED", "SUFFIX", "parsed", "read_record", "read_tensors", "write_record"]

SUFFIX = ".hotswap"
FORMAT = 1
MOST_JSON = 2**28
"""Bytes of JSON: a hundred times what the largest unit of the paper's study takes."""
NESTED = 32
"""How deep lists and tables may lie in each other."""

_LINE = re.compile(rb"hotswap (\d{1,9}) (\d{1,18}) ([0-9a-f]{64}) (\d{1,18}) ([0-9a-f]{64})\n")
_LONGEST = 256  # bytes of the line
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def write_record(path: Path, content: Mapping[str, Any], tensors: bytes = b"") -> None:
    """Write a file, whole or not at all."""
    text = json.dumps(content, separators=(",", ":")).encode()
    sizes = f"{len(text)} {sha256(text).hexdigest()} {len(tensors)} {sha256(tensors).hexdigest()}"
    with explained(path.parent), replacing(path) as part, part.open("wb") as file:
        file.write(f"hotswap {FORMAT} {sizes}\n".encode())
        file.write(text)
        file.write(tensors)


def read_record(path: Path) -> dict[str, Any]:
    """The JSON of a file.

    Raises:
        DamagedError: It is not as it was written.
        StudyError: It cannot be read, or is of a newer version.
    """
    text, _ = _parts(path, tensors=False)
    content = parsed(text, path)
    if not isinstance(content, dict):
        raise DamagedError(path, "it holds no table")
    return content


def read_tensors(path: Path) -> bytes:
    """The tensors of a file, as safetensors has them. Raises as `read_record` does."""
    return _parts(path, tensors=True)[1]


def _parts(path: Path, *, tensors: bool) -> tuple[bytes, bytes]:
    with explained(path.parent), path.open("rb") as file:
        line = file.readline(_LONGEST)
        size = os.fstat(file.fileno()).st_size - len(line)  # of this file: another may take its place meanwhile
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise DamagedError(path, "its first line is not hotswap's")
        if int(matched[1]) != FORMAT:
            raise StudyError(
                f"{path} is of format {int(matched[1])}, and this version of hotswap knows format {FORMAT}; use the "
                "version that wrote it."
            )
        first, second = int(matched[2]), int(matched[4])
        if first + second != size:
            raise DamagedError(path, f"it should have {first + second:,} bytes after its first line, and has {size:,}")
        if first > MOST_JSON:
            raise DamagedError(path, f"its JSON is larger than {MOST_JSON:,} bytes")
        text = file.read(first)
        rest = file.read(second) if tensors else b""
    for part, digest in ((text, matched[3]), (rest, matched[5] if tensors else sha256(b"").hexdigest().encode())):
        if sha256(part).hexdigest().encode() != digest:
            raise DamagedError(path, "its digest does not match")
    return text, rest


def parsed(data: bytes, place: object) -> Any:
    """The value of a JSON text that is no deeper and no larger than anything that hotswap writes.

    Raises:
        StudyError: It is not JSON, or beyond the limits.
    """
    if len(data) > MOST_JSON:
        raise StudyError(f"{place} cannot be read (it has more than {MOST_JSON:,} bytes).")
    depth = 0
    for bracket in _BRACKETS.finditer(data):
        depth += (bracket[0] in b"[{") - (bracket[0] in b"]}")
        if depth > NESTED:
            raise StudyError(f"{place} cannot be read (its JSON is nested more than {NESTED} deep).")
    try:
        return json.loads(data)
    except ValueError as error:  # wrong UTF-8 and numbers of too many digits among them
        raise StudyError(f"{place} cannot be read ({' '.join(str(error).split())}).") from error
