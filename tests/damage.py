"""Files that change on a disk: every change is noticed, or changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from hotswap.errors import HotSwapError

__all__ = ["check_damage"]


def check_damage(files: Sequence[Path], read: Callable[[], object], rounds: int = 300) -> None:
    """Cut, change or lengthen files at any place: reading raises a sentence that names the file, or gives the same.

    read: reads all of the files.
    """
    expected, chance = read(), random.Random(0)
    for _ in range(rounds):
        file = chance.choice(files)
        whole = file.read_bytes()
        place = chance.randrange(len(whole))
        end = chance.choice([place, place + 1, len(whole)])
        file.write_bytes(whole[:place] + chance.randbytes(chance.randrange(3)) + whole[end:])
        changed = file.read_bytes() != whole
        try:
            assert read() == expected
        except HotSwapError as error:
            said = str(error)
        else:
            said = "" if changed else str(file)  # what has changed must be said
        assert str(file) in said
        file.write_bytes(whole)
