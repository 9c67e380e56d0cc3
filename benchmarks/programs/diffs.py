"""Diffs without context: how many lines they change, and what they make of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hotswap.errors import HotSwapError

__all__ = ["DiffError", "Hunk", "applied", "changed_lines", "hunks_of"]

HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


class DiffError(HotSwapError, ValueError):
    """A diff that is none, or does not fit the program."""


class Hunk(NamedTuple):
    """Lines that are replaced."""

    file: str
    line: int
    """The number of the first line that goes, from 1; the new lines stand before it."""
    gone: list[str]
    new: list[str]


def hunks_of(path: Path) -> list[Hunk]:
    """The hunks of a diff, with the lines that they take away and bring."""
    found: list[Hunk] = []
    file = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("--- a/"):
            file = line.removeprefix("--- a/")
        elif header := HEADER.match(line):
            start, gone = int(header[1]), int(header[2] or 1)
            found.append(Hunk(file, start + (not gone), [], []))
        elif line.startswith(("-", "+")) and not line.startswith("+++ b/") and found:
            (found[-1].gone if line[0] == "-" else found[-1].new).append(line[1:])
        elif not line.startswith("+++ b/"):
            raise DiffError(f"{path.name}: {line!r} is no line of a diff without context; make it with diff -U0.")
    return found


def changed_lines(hunks: Iterable[Hunk]) -> int:
    """The lines that a user changes: a line that is replaced by another one counts once."""
    return sum(max(len(hunk.gone), len(hunk.new)) for hunk in hunks)


def applied(text: str, hunks: Iterable[Hunk]) -> str:
    """A file after all hunks, whose numbers of lines are those of the original.

    Raises:
        DiffError: A hunk takes away a line that is not there, or two hunks take away the same one.
    """
    lines = text.splitlines()
    begin = len(lines)
    for hunk in sorted(hunks, key=lambda hunk: (hunk.line, len(hunk.gone)), reverse=True):
        place, end = hunk.line - 1, hunk.line - 1 + len(hunk.gone)
        there = [line.rstrip() for line in lines[place:end]]
        if end > begin or there != [line.rstrip() for line in hunk.gone]:
            raise DiffError(f"A diff does not fit {hunk.file}, line {hunk.line}: {hunk.gone!r} was expected there.")
        lines[place:end], begin = hunk.new, place
    return "\n".join(lines) + "\n"
