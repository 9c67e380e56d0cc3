"""Processes that train runs, side by side: each is given runs as lines of JSON, and gives back lines of JSON.

A process that is killed, by the system for want of memory, say, takes one run with it, whose row says so. If this
process is killed, they end after the run that they are at.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO

from hotswap.bench.running import killed
from hotswap.bench.runs import Point, Result, Run

__all__ = ["Workers"]

ENDING = 10.0
"""Seconds that a process may take to end."""


class Workers:
    """So many processes, which share the cores of the machine, or its GPU.

    load: files that register workloads and methods of one's own.
    """

    def __init__(self, jobs: int, device: str = "cpu", load: Sequence[Path] = ()) -> None:
        self.jobs, self.device, self.load = jobs, device, tuple(load)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: list[_Worker] = []
        for _ in range(jobs):
            self._idle.put(self._new())

    def _new(self) -> _Worker:
        worker = _Worker(self.device, self._threads(), self.load)
        self._all.append(worker)
        return worker

    def _threads(self) -> int:
        """Of each process: as many as the environment says, or else its share of the cores."""
        said = os.environ.get("OMP_NUM_THREADS", "")
        return int(said) if said.isdigit() and int(said) > 0 else max(1, (os.cpu_count() or 1) // self.jobs)

    def train(self, run: Run, watch: Callable[[Point], None]) -> Result:
        """See `Trainer`."""
        worker = self._idle.get()
        result = worker.train(run, watch) or worker.died(run)
        if result.state == "killed":  # after an error of its GPU, too, a process computes nothing any more
            worker.close()
            self._all.remove(worker)
            worker = self._new()
        self._idle.put(worker)
        return result

    def stop(self) -> None:
        """See `Trainer`."""
        for worker in self._all:
            worker.kill()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.close()


class _Worker:
    """One of the processes. It starts when it is first needed."""

    def __init__(self, device: str, threads: int, load: Sequence[Path]) -> None:
        self._command = [sys.executable, "-m", "hotswap.bench.worker", device, str(threads), *map(str, load)]
        self._process: subprocess.Popen[str] | None = None
        self._said: IO[str] | None = None
        self._points: list[Point] = []

    def train(self, run: Run, watch: Callable[[Point], None]) -> Result | None:
        """None if the process has died."""
        process = self._started()
        self._points = []
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(run)) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                told = json.loads(line)
                if "point" not in told:
                    return Result.of(told)
                self._points.append(Point(*told["point"]))
                watch(self._points[-1])
        except (BrokenPipeError, ValueError):  # half a line, too, is what a killed process leaves
            pass
        return None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (see close)
            # In a session of its own: Ctrl-C is for this process, which lets runs come to their end.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                text=True,
                start_new_session=True,
            )
        return self._process

    def died(self, run: Run) -> Result:
        """What is left of a run whose process has died."""
        assert self._process is not None
        assert self._said is not None
        try:
            code = self._process.wait(ENDING)  # it has closed its output, or was killed
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        self._said.seek(0)
        said = self._said.read().strip().splitlines()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        last = f" It said: {said[-1].strip()}" if said and code >= 0 else ""
        return killed(run, f"The process that trained it was ended {how}.{last}", self._points)

    def kill(self) -> None:
        """End it, whatever it is doing."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End it; it has nothing to do."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._said):
                if stream is not None:
                    stream.close()
