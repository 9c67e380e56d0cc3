"""The command that trained something, as others may read it."""

from __future__ import annotations

import shlex
from pathlib import PurePath

__all__ = ["without_folders"]


def without_folders(command: str) -> str:
    """`hotswap study run ../mine.toml --out /home/me/x` becomes `hotswap study run mine.toml --out x`."""
    try:
        words = shlex.split(command)
    except ValueError:  # quotes that do not match: from elsewhere, and not ours to mend
        return command
    return shlex.join(map(_last_part, words))


def _last_part(word: str) -> str:
    option, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{PurePath(value).name or value}"
