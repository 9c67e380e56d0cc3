"""Ctrl-C waits until a step is whole."""

from __future__ import annotations

import threading
from _signal import (  # type: ignore[import-not-found]  # `signal` makes enumerations of these, and takes ten times as long
    SIGINT,
    getsignal,
    signal,
)
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Uninterrupted"]


class Uninterrupted:
    """Hold one Ctrl-C back while a block runs, and raise it afterwards; a second one interrupts the block at once."""

    def __enter__(self) -> None:
        """Hold Ctrl-C back, in the main thread, which is the only one that it reaches."""
        self._before: Any = None
        if threading.get_ident() == threading.main_thread().ident:
            self._before = getsignal(SIGINT)
            if callable(self._before):
                self._pressed: tuple[int, FrameType | None] | None = None
                signal(SIGINT, self._hold)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._pressed is not None:
            self._before(number, frame)
        self._pressed = (number, frame)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let Ctrl-C through again, with the one that was held back."""
        if callable(self._before):
            signal(SIGINT, self._before)
            if self._pressed is not None and error is None:
                self._before(*self._pressed)
