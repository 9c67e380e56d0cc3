"""Stopping in good order: what Ctrl-C and a cluster's scheduler ask for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, Timer
from types import FrameType

__all__ = ["PATIENCE", "stopped_by_signals"]

PATIENCE = 8.0
"""Seconds that units have to come to a place where they can stop; then the command ends as it is."""


@contextmanager
def stopped_by_signals(say: Callable[[str], None], after: str = "this epoch") -> Iterator[list[int]]:
    """A list to which the first SIGINT or SIGTERM is added; a second one interrupts at once.

    The process ends some seconds after the first, whatever it is doing: schedulers wait for no longer, and files are
    whole whenever it ends. A signal that is ignored stays so: shells ignore SIGINT for jobs in the background, which
    Ctrl-C is not meant for.
    """
    received: list[int] = []

    def end() -> None:
        say("Stopped. Run the same command again to go on; what was under way goes on from where it was stored last.")
        os._exit(128 + received[0])

    last = Timer(PATIENCE, end)
    last.daemon = True

    def receive(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        last.start()
        # Said by a thread: this one may be in the middle of printing, or of importing what printing needs.
        Thread(
            target=say, args=(f"Stopping after {after}, or in {PATIENCE:.0f} s; once more to stop at once.",)
        ).start()

    heeded = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, receive) for number in heeded}
    try:
        yield received
    finally:
        last.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
