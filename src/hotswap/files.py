"""Files that are whole or not there: a reader never meets half of one, whenever the writer is killed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotswap.errors import StudyError

__all__ = ["explained", "replacing", "write_text"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an error of the system in this block into a sentence that says what to do about the folder.

    Raises:
        StudyError: The disk is full, or the folder cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise StudyError(
                f"The disk is full: {folder} cannot be written to. What was stored before is safe; make room and run "
                "the same command again to go on."
            ) from error
        raise StudyError(
            f"{folder} cannot be read or written ({error.strerror or error}); check the folder's permissions and its "
            "disk."
        ) from error
