"""Stopping in good order: what Ctrl-C and a cluster's scheduler ask for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stopped_by_signals"]


@contextmanager
def stopped_by_signals(say: Callable[[str], None]) -> Iterator[list[int]]:
    """A list to which the first SIGINT or SIGTERM is added; a second one interrupts at once."""
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("Stopping after this epoch; once more to stop at once.")

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
