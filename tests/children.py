"""Commands in processes of their own, which end with the test that started them, whatever happens in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["PATIENCE", "child", "hotswap_command"]

PATIENCE = 600.0  # seconds after which something must be wrong, however busy the machine is

# A shell ignores SIGINT for what it runs in the background, and the processes of a test inherit that: each says itself
# which of the two it stands for.
_MAIN = "import signal; signal.signal(signal.SIGINT, signal.{}); from hotswap.cli import main; main()"


def hotswap_command(*words: str, background: bool = False) -> list[str]:
    """The command line `hotswap WORDS`, as a shell starts it in the foreground or in the background."""
    main = _MAIN.format("SIG_IGN" if background else "default_int_handler")
    return [sys.executable, "-u", "-c", main, *words]


@contextmanager
def child(
    command: Sequence[str], *, variables: Mapping[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end of the block if it has not ended by then.

    variables: added to its environment.
    """
    environment = {**os.environ, "COLUMNS": "200", **(variables or {})}
    with subprocess.Popen(command, text=True, env=environment, **options) as process:
        try:
            yield process
        finally:
            process.kill()
