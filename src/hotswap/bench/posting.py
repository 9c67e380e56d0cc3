"""A run of the benchmark on a worker of a cluster: what it measures, it posts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from hotswap.bench.runs import Run
from hotswap.bench.training import training
from hotswap.cluster import Desk
from hotswap.data import Dataset
from hotswap.data.registry import hand_over
from hotswap.extensions import load_texts

__all__ = ["BenchWork"]


@dataclass(frozen=True)
class BenchWork:
    """Trains a run. See `hotswap.cluster.Work`.

    Attributes:
        key: One for each command; a process that has trained a run of it has loaded the files.
        device: On which.
        threads: In how many threads.
        files: The Python files to load first, by name and text: those of `hotswap --load`.
    """

    key: str
    device: str
    threads: int
    files: tuple[tuple[str, str], ...] = ()

    def __call__(self, payload: Run, shared: Mapping[str, Dataset], desk: Desk) -> Iterator[bool]:
        """Train to the end, which is near: there are no checkpoints, and who is asked to stop finishes the run."""
        torch.set_num_threads(self.threads)
        if self.key not in _PREPARED:
            load_texts(self.files)
            hand_over(data.with_own_labels() for data in shared.values())
            _PREPARED.add(self.key)
        points = training(payload, self.device)
        while True:
            try:
                desk.post(next(points))
            except StopIteration as end:
                desk.post(end.value)
                break
            yield False
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()  # for those who share the GPU
        yield True


_PREPARED: set[str] = set()
