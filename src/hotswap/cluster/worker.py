"""A worker's side of a unit: a desk from which things go to the command, as one stream."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from hotswap.cluster.storage import Storage, checkpoint_name
from hotswap.cluster.units import Checkpoint, Stored, Where

__all__ = ["StreamDesk", "work_on"]

T = TypeVar("T")

GLANCE = 0.5  # seconds between two looks at the switch


class StreamDesk:
    """See `hotswap.cluster.Desk`. What is posted waits here until the task yields it.

    Args:
        checkpoints: From which the unit may go on, the latest first.
        storage: Where checkpoints go, if not to the command.
        folder: The unit's part of the storage.
        switch: Says whether to stop.
    """

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint | Stored],
        storage: Storage | None,
        folder: str,
        switch: Callable[[], bool],
    ) -> None:
        self._checkpoints, self._storage, self._folder, self._switch = checkpoints, storage, folder, switch
        self._posts: list[tuple[str, Any]] = []
        self._looked, self._stopping = 0.0, False

    def post(self, message: object) -> None:
        """See `Desk`."""
        self._posts.append(("post", message))

    def save(self, epoch: int, data: bytes, *, keep: bool = False) -> None:
        """See `Desk`."""
        if self._storage is None or keep:
            self._posts.append(("checkpoint", Checkpoint(epoch, data, keep)))
            return
        name = checkpoint_name(self._folder, epoch, data)
        self._storage.write(name, data)
        self._posts.append(("checkpoint", Stored(epoch, self._storage.uri, name)))

    def latest(self, read: Callable[[bytes], T], report: Callable[[str], None]) -> T | None:
        """See `Desk`."""
        for checkpoint in self._checkpoints:
            try:
                if isinstance(checkpoint, Checkpoint):
                    return read(checkpoint.data)
                return read(Storage(checkpoint.storage).read(checkpoint.name))
            except (OSError, ValueError) as error:
                why = " ".join(str(error).split())
            report(
                f"The checkpoint after epoch {checkpoint.epoch} cannot be used ({why}); going on from an earlier one."
            )
        return None

    def stopping(self) -> bool:
        """See `Desk`."""
        if not self._stopping and time.monotonic() - self._looked >= GLANCE:
            self._stopping = self._switch()
            self._looked = time.monotonic()
        return self._stopping

    def take(self) -> list[tuple[str, Any]]:
        """What is to be sent."""
        posts, self._posts = self._posts, []
        return posts


def work_on(references: list[Any], packed: bytes) -> Iterator[tuple[str, Any]]:
    """Do a unit's work, and yield what the command is to know: when it began, what was posted, and how it ended."""
    yield "began", Where(socket.gethostname(), os.getpid())
    # While a task's own thread waits for Ray, its core is free for another task, which stays. So another thread waits.
    with ThreadPoolExecutor(1) as aside:
        work, shared = aside.submit(ray.get, references).result()
        payload, checkpoints, uri, folder, switch = cloudpickle.loads(packed)

        def is_on() -> bool:
            try:
                return bool(ray.get(switch.is_on.remote(), timeout=20 * GLANCE))
            except ray.exceptions.GetTimeoutError:
                return False  # busy, it seems
            except ray.exceptions.RayError:
                return True  # the command is gone

        storage = None if uri is None else Storage(uri)
        desk = StreamDesk(checkpoints, storage, folder, lambda: aside.submit(is_on).result())
        finished = False
        if not desk.stopping():
            for state in work(payload, shared, desk):
                finished = state
                yield "posts", desk.take()
        yield "ended", finished
