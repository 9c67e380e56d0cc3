"""Processes that train together and do one task after the other: to start them takes longer than most tasks.

They are forked from one process that has imported torch, which takes longer than anything else they do.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["FORKED", "Processes"]

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["hotswap.optim", "hotswap.race", "torch.distributed.checkpoint.state_dict"])

PATIENCE = 600.0  # seconds after which something must be wrong, however busy the machine is


class Processes:
    """One group of processes. When one of them fails in a task, all of them end."""

    def __init__(self, world: int, folder: Path, workers: str = "tests.optim.distributed.workers") -> None:
        self.errors = [folder / f"error-{rank}.txt" for rank in range(world)]
        self.all, self.channels = [], []
        for rank, errors in enumerate(self.errors):
            here, there = FORKED.Pipe()
            process = FORKED.Process(target=serve, args=(workers, rank, world, folder / "store", errors, there))
            process.start()
            there.close()
            self.all.append(process)
            self.channels.append(here)

    def do(self, task: str, folder: Path) -> list[dict[str, Any]]:
        """What each process found; nothing of one that has ended."""
        with self._patience():
            for channel in self.channels:
                with suppress(BrokenPipeError):
                    channel.send((task, folder))
            return [answer(channel) for channel in self.channels]

    def end(self) -> list[int | None]:
        """Give them no more tasks, and wait: their exit statuses."""
        for channel in self.channels:
            channel.close()
        with self._patience():
            for process in self.all:
                process.join()
        return [process.exitcode for process in self.all]

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


def answer(channel: Connection) -> dict[str, Any]:
    """What a process has found; nothing if it has ended."""
    with suppress(EOFError, ConnectionResetError):
        found: dict[str, Any] = channel.recv()
        return found
    return {}


def serve(workers: str, rank: int, world: int, store: Path, errors: Path, channel: Connection) -> None:
    """What each process does: the tasks of a module, by name, until there are no more."""
    with errors.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    shared = dist.FileStore(str(store), world)
    dist.init_process_group("gloo", store=shared, rank=rank, world_size=world, timeout=timedelta(seconds=300))
    tasks = import_module(workers).TASKS
    with suppress(EOFError):
        while True:
            task, folder = channel.recv()
            channel.send(tasks[task](rank, world, folder))
    dist.destroy_process_group()
    os._exit(0)  # torch's threads sometimes abort an interpreter that ends in its own time
