"""A unit of a study on a worker of a cluster, which has no folder: what it would write, it posts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from hotswap.cluster import Desk
from hotswap.data import Dataset
from hotswap.ensemble.snapshots import Snapshot, from_bytes, to_bytes
from hotswap.extensions import load_texts
from hotswap.studies.running.assemble import Held
from hotswap.studies.running.train import RunOptions, Training, set_up
from hotswap.studies.specification.plan import Unit
from hotswap.studies.specification.study import StudySpec
from hotswap.studies.storage.rows import ArmCount, MetricRow

__all__ = ["Post", "StudyWork"]


@dataclass(frozen=True)
class Post:
    """A call of a method of the unit's keeper or listener, to be made in the command's process."""

    to: Literal["keeper", "listener"]
    method: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


class _PostingKeeper:
    """See `UnitKeeper`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def finished(self) -> int:
        return 0  # or the command would not have sent the unit

    def record(self, epoch: int, rows: Sequence[MetricRow], counts: Sequence[ArmCount], *, seconds: float) -> None:
        self._desk.post(Post("keeper", "record", (epoch, rows, counts), {"seconds": seconds}))

    def diverged(self, run: str, epoch: int) -> None:
        self._desk.post(Post("keeper", "diverged", (run, epoch)))

    def finish(self, epochs: int, provenance: Mapping[str, Any]) -> None:
        self._desk.post(Post("keeper", "finish", (epochs, provenance)))

    def save(self, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], *, keep: bool) -> None:
        self._desk.save(epoch, to_bytes(epoch, tensors, notes), keep=keep)

    def latest(self, report: Callable[[str], None]) -> Snapshot | None:
        return self._desk.latest(from_bytes, report)


class _PostingListener:
    """See `Listener`. The command knows which unit it is."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def say(self, text: str) -> None:
        self._desk.post(Post("listener", "say", (text,)))

    def unit_begins(self, unit: Unit, epoch: int, epochs: int) -> None:
        self._desk.post(Post("listener", "unit_begins", (epoch, epochs)))

    def epoch_done(self, unit: Unit, epoch: int, alive: int, seconds: float) -> None:
        self._desk.post(Post("listener", "epoch_done", (epoch, alive, seconds)))

    def unit_ends(self, unit: Unit, *, finished: bool) -> None:
        self._desk.post(Post("listener", "unit_ends", (), {"finished": finished}))


@dataclass(frozen=True)
class StudyWork:
    """Trains a unit of a study. See `hotswap.cluster.Work`.

    Attributes:
        key: One for each command; a process that has trained a unit of it keeps the data on its device.
        study: What `StudySpec.to_dict` gave.
        options: How to run.
        threads: In how many threads.
        files: The Python files to load first, by name and text: those of `hotswap --load`.
    """

    key: str
    study: dict[str, Any]
    options: RunOptions
    threads: int
    files: tuple[tuple[str, str], ...] = ()

    def __call__(self, payload: Unit, shared: Dataset, desk: Desk) -> Iterator[bool]:
        """Train; what is yielded says whether the unit is finished."""
        torch.set_num_threads(self.threads)
        if self.key not in _PREPARED:
            _PREPARED.clear()
            _PREPARED[self.key] = self._prepare(shared)
        study, held = _PREPARED[self.key]
        listener = _PostingListener(desk)
        training = Training(_PostingKeeper(desk), study, payload, held, self.options, listener, desk.stopping)
        for _ in training.epochs():
            yield training.finished
        if held.tensors.train_x.is_cuda:
            del training
            torch.cuda.empty_cache()  # for those who share the GPU

    def _prepare(self, data: Dataset) -> tuple[StudySpec, Held]:
        load_texts(self.files)
        study = StudySpec.from_dict(self.study)
        return study, set_up(study, data.with_own_labels(), self.options)


_PREPARED: dict[str, tuple[StudySpec, Held]] = {}
