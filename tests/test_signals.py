"""A signal may come at any moment, in the middle of printing, too."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from hotswap.cli.training import stopped_by_signals
from tests.children import PATIENCE


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """SIGINT means something here, also where the tests themselves run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def signalled() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)  # which it interrupts


def test_what_is_said_waits_for_what_is_being_printed() -> None:
    printing, said = threading.Lock(), []

    def say(text: str) -> None:
        if printing.acquire(timeout=PATIENCE if threading.current_thread() is not threading.main_thread() else 0.01):
            said.append(text)
            printing.release()

    with stopped_by_signals(say, "this run") as received:
        with printing:
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + PATIENCE
            while not received and time.monotonic() < deadline:
                time.sleep(0.01)
            assert said == []
        deadline = time.monotonic() + PATIENCE
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert said == ["Stopping after this run, or in 8 s; once more to stop at once."]
        with pytest.raises(KeyboardInterrupt):
            signalled()
    assert received == [signal.SIGINT]
