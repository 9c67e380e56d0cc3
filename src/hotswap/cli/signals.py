"""Stopping in good order: what Ctrl-C and a cluster's scheduler ask for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

__all__ = ["stopped_by_signals"]


@contextmanager
def stopped_by_signals(say: Callable[[str], None], after: str = "this epoch") -> Iterator[list[int]]:
    """A list to which the first SIGINT or SIGTERM is added; a second one interrupts at once.

    A signal that is ignored stays so: shells ignore SIGINT for jobs in the background, which Ctrl-C is not meant for.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        # Said by a thread: this one may be in the middle of printing, or of importing what printing needs.
        Thread(target=say, args=(f"Stopping after {after}; once more to stop at once.",)).start()

    heeded = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, receive) for number in heeded}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
