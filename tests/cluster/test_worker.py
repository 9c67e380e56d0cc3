"""A worker's side of a unit, without a cluster around it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ray import cloudpickle

from hotswap.cluster import worker
from hotswap.cluster.worker import work_on


class Switch:
    """On from the third look at it."""

    looks = 0

    @property
    def is_on(self) -> Switch:
        return self

    def remote(self) -> bool:
        Switch.looks += 1
        return Switch.looks > 2


def test_the_thread_of_the_task_never_waits_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray gives the core of a task whose own thread waits to another one, so that two would share it."""
    waited: list[threading.Thread] = []

    def get(what: Any, timeout: float | None = None) -> Any:
        waited.append(threading.current_thread())
        return what

    def work(payload: str, shared: str, desk: Any) -> Iterator[bool]:
        while not desk.stopping():
            desk.post((payload, shared))
            yield False
        yield True

    monkeypatch.setattr(worker.ray, "get", get)
    monkeypatch.setattr(worker, "GLANCE", 0.0)
    packed = cloudpickle.dumps(("payload", [], None, "folder", Switch()))
    (began, _), *posts, (ended, finished) = work_on([work, "shared"], packed)
    assert (began, ended, finished) == ("began", "ended", True)
    assert posts == [("posts", [("post", ("payload", "shared"))]), ("posts", [])]
    assert len(waited) == 4  # for the work, and three times for the switch
    assert threading.main_thread() not in waited
