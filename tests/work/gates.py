"""Units that stand still where a test wants them: so that what is killed is in the middle of one, on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.children import PATIENCE

__all__ = ["Gate", "wait_until"]

_TEXT = """
import os
import time
from pathlib import Path

from hotswap.studies.training import Training

train = Training._train


def gated(self, epoch, schedule):
    if epoch == {epoch} + 1 and self.unit.id in {units} and is_first(self.unit.id):
        while {stays} or not self.over():
            time.sleep(0.02)
    return train(self, epoch, schedule)


def is_first(unit):
    folder, pid = Path({folder!r}), str(os.getpid())
    try:
        (folder / pid).write_text(pid)
        os.link(folder / pid, folder / unit)  # whole, and for one process only
    except OSError:
        return False
    return True


Training._train = gated
"""


class Gate:
    """A file to be loaded that lets units wait after an epoch, until they are killed or asked to stop.

    Each waits the first time that it comes there; from then on the gate is open for it. One that does not heed waits
    until it is killed.
    """

    EPOCH = 17

    def __init__(self, folder: Path, *units: str, epoch: int = EPOCH, heeds: bool = True) -> None:
        self.units, self._folder = units, folder / "gate"
        self._folder.mkdir()
        self.file = folder / "gate.py"
        text = _TEXT.format(epoch=epoch, units=units, folder=str(self._folder), stays=not heeds)
        self.file.write_text(text, encoding="utf-8")

    def process(self, unit: str) -> int:
        """The process in which a unit waits, once it does."""
        wait_until((self._folder / unit).exists)
        return int((self._folder / unit).read_text())

    def close(self) -> None:
        """Let all units wait once more."""
        for unit in self.units:
            (self._folder / unit).unlink(missing_ok=True)


def wait_until(true: Callable[[], object]) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "It has not happened."
        time.sleep(0.02)
