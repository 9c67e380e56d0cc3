"""Processes that train together and do one task after the other: to start them takes longer than most tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

__all__ = ["Processes"]

ROOT = Path(__file__).parents[3]
PATIENCE = 600.0  # seconds after which something must be wrong, however busy the machine is


class Processes:
    """One group of processes. When one of them fails in a task, all of them end."""

    def __init__(self, world: int, folder: Path, workers: str = "tests.optim.distributed.workers") -> None:
        self.workers = workers
        self.errors = [folder / f"error-{rank}.txt" for rank in range(world)]
        self.all = [self._started(rank, world, folder) for rank in range(world)]

    def _started(self, rank: int, world: int, folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", self.workers, str(rank), str(world), str(folder)]
        with self.errors[rank].open("w", encoding="utf-8") as errors:
            pipe = subprocess.PIPE
            return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True)

    def do(self, task: str, folder: Path) -> list[dict[str, Any]]:
        """What each process found; nothing of one that has ended."""
        with self._patience():
            for process in self.all:
                with suppress(BrokenPipeError):
                    print(json.dumps([task, str(folder)]), file=process.stdin, flush=True)
            answers = [process.stdout.readline() for process in self.all]
        return [json.loads(answer or "{}") for answer in answers]

    def end(self) -> list[int]:
        """Give them no more tasks, and wait: their exit statuses."""
        for process in self.all:
            with suppress(BrokenPipeError):
                process.stdin.close()
        with self._patience():
            for process in self.all:
                process.wait()
                process.stdout.close()
        return [process.returncode for process in self.all]

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """When it has come to an end, so have the processes."""
        watchdog = Timer(PATIENCE, lambda: [process.kill() for process in self.all])
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def complaints(self) -> str:
        """What they wrote to the standard error."""
        return "\n".join(file.read_text(encoding="utf-8") for file in self.errors)
