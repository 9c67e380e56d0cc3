"""Training one unit of a study: epoch by epoch, from its latest checkpoint, measured and saved as it goes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import torch

from hotswap.data import Dataset
from hotswap.ensemble import Ensemble, EpochTally, TrainingData, Update, allow_tf32
from hotswap.ensemble.kernels import load_compiler
from hotswap.errors import SettingError, UnsupportedError
from hotswap.store import Checkpoints, occasion, versions
from hotswap.studies.folder import DTYPE
from hotswap.studies.study import FINGERPRINT_VERSION, RunSpec, StudySpec, Unit

__all__ = [
    "Assembled",
    "Held",
    "Progress",
    "RunOptions",
    "Training",
    "assemble",
    "check_size",
    "device_named",
    "milestones",
    "on_device",
    "set_up",
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run, as against what: none of this decides a result, except the precision."""

    device: str = "cpu"
    precision: Literal["fp32", "tf32", "fp64"] = "fp32"
    stop_after: float | None = None
    """Minutes after which to stop at the next checkpoint."""
    checkpoint_minutes: float = 1.0
    """At most so much is lost where a process is killed, and an epoch. The first checkpoint of a unit is written
    earlier, after the first epoch that is recorded."""
    checkpoint_epochs: int | None = None
    """A checkpoint every so many epochs too."""
    max_runs: int | None = None
    """The most runs trained together, where memory is short."""


class Progress(Protocol):
    """Is told of the progress of one unit."""

    def say(self, text: str) -> None:
        """Something a person should read."""

    def unit_begins(self, epoch: int, epochs: int) -> None:
        """The unit is taken up after `epoch` epochs of `epochs`."""

    def epoch_done(self, epoch: int, diverged: int, seconds: float) -> None:
        """An epoch took so many seconds; so many runs have diverged as far as is known."""


def milestones(epochs: int) -> tuple[int, ...]:
    """The epochs whose weights are kept for timing: a fifth, three fifths, all; the paper's are 100, 300 and 500."""
    return tuple(sorted({max(1, epochs // 5), max(1, 3 * epochs // 5), epochs}))


def set_up(study: StudySpec, data: Dataset, options: RunOptions) -> Held:
    """The data on the device, and the precision in force."""
    for family in study.families:
        family.check_trained()
    device = device_named(options.device)
    allow_tf32(options.precision == "tf32")
    load_compiler(device)
    return on_device(data, study, device, torch.float64 if options.precision == "fp64" else torch.float32)


def device_named(name: str) -> torch.device:
    """The device, or a sentence where there is none of that name."""
    if name not in ("cpu", "cuda") and not name.startswith("cuda:"):
        raise SettingError(f"There is no device {name!r}; choose cpu or cuda.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UnsupportedError("There is no CUDA device here; use --device cpu, or run where there is a GPU.")
    return torch.device(name)


# The ensemble of a unit.


class Assembled(NamedTuple):
    """An ensemble and the runs in its rows, in order."""

    ensemble: Ensemble
    runs: tuple[RunSpec, ...]


@dataclass(frozen=True)
class Held:
    """The study's part of a data set, all of it on the device, and what a network has to fit."""

    tensors: TrainingData
    shape: tuple[int, int, int]
    """The shape of an image: channels, height, width."""
    classes: int


def check_size(data: Dataset, study: StudySpec) -> int:
    """How many training images the study uses, if the data set has as many as it needs; otherwise a SettingError."""
    count = len(data.train_images) if study.train_images is None else study.train_images
    if count > len(data.train_images):
        raise SettingError(
            f"The study {study.name!r} trains on {count} images, but {data.name} has {len(data.train_images)}; "
            "lower train_images or leave it out."
        )
    if max(study.batch_sizes) > count:
        raise SettingError(
            f"The study {study.name!r} has batch size {max(study.batch_sizes)}, but only {count} training images; "
            "leave that batch size out."
        )
    return count


def on_device(data: Dataset, study: StudySpec, device: torch.device, dtype: torch.dtype) -> Held:
    """The study's part of a data set, in the form that its network takes."""
    count = check_size(data, study)
    flat = study.network.flat
    tensors = TrainingData(
        torch.from_numpy(data.train_inputs(flat=flat)[:count]).to(device, dtype),
        torch.from_numpy(data.train_labels[:count]).to(device),
        torch.from_numpy(data.test_inputs(flat=flat)).to(device, dtype),
        torch.from_numpy(data.test_labels).to(device),
    )
    return Held(tensors, data.shape, data.classes)


def assemble(study: StudySpec, unit: Unit, held: Held) -> Assembled:
    """The unit's ensemble before its first step."""
    families = [study.family(name) for name in unit.families]
    members = [[run for run in unit.runs if run.algorithm == family.name] for family in families]
    rows = [[own[place] for place in family.order(own)] for family, own in zip(families, members, strict=True)]
    runs = tuple(run for own in rows for run in own)
    model = study.network.model(held.shape, held.classes)
    images = held.tensors.train_x
    seeds = [run.seed for run in runs]
    theta = model.initial(seeds).to(images.device, images.dtype)
    first = families[0]
    if len(families) == 1:
        update = first.update(model, theta, runs)
    else:
        update = first.update_together(model, theta, list(zip(families, rows, strict=True)))
    if not isinstance(update, Update):
        raise SettingError(
            f"{type(first).__name__}.update() must return a hotswap.ensemble.Update, such as Elementwise(...), but it "
            f"returned a {type(update).__name__}."
        )
    return Assembled(Ensemble(update, held.tensors, unit.batch_size, study.data_seed), runs)


# Training.


class _CheckpointSchedule:
    """Says after which epochs a unit's checkpoint is due."""

    def __init__(self, options: RunOptions, start: int) -> None:
        self._options = options
        self._none_yet = start == 0
        self._saved_at, self._saved_when = start, time.monotonic()

    def is_due(self, epoch: int, *, recorded: bool) -> bool:
        """True if a checkpoint is due after this epoch. `recorded` says whether the epoch was recorded."""
        if self._none_yet and recorded:
            return True
        every = self._options.checkpoint_epochs
        if every is not None and epoch - self._saved_at >= every:
            return True
        return time.monotonic() - self._saved_when >= 60 * self._options.checkpoint_minutes

    def saved(self, epoch: int) -> None:
        """One was written. The first, early one does not shift the rhythm of those that come by the epoch."""
        every = self._options.checkpoint_epochs
        if not self._none_yet or every is None or epoch >= every:
            self._saved_at = epoch
        self._none_yet, self._saved_when = False, time.monotonic()


@lru_cache(maxsize=4)
def _identity(study: StudySpec) -> dict[str, Any]:
    """The study and its fingerprint, for every file of a unit; the same for all files that a command writes."""
    fingerprint = {"fingerprint": study.fingerprint(), "fingerprint_version": FINGERPRINT_VERSION}
    return {"study": study.to_dict(), **fingerprint}


class Training:
    """One unit, from its latest checkpoint to its last epoch."""

    def __init__(
        self,
        study: StudySpec,
        unit: Unit,
        data: Held,
        options: RunOptions,
        checkpoints: Checkpoints,
        progress: Progress,
        over: Callable[[], bool],
    ) -> None:
        self.study, self.unit, self.options, self.progress = study, unit, options, progress
        self.checkpoints, self.over = checkpoints, over
        self.families = {name: study.family(name) for name in unit.families}
        self.built: Assembled = assemble(study, unit, data)
        self.recorded = frozenset(study.recorded_epochs())
        timed = len(self.families) == 1 and any(family.arms() for family in self.families.values())
        self.milestones = frozenset(milestones(study.epochs) if timed else ())
        self.seconds = self.measuring = self.preparing = 0.0
        self.runs: dict[str, dict[str, Any]] = {
            run.id: {
                "algorithm": run.algorithm,
                "batch_size": run.batch_size,
                "seed": run.seed,
                "settings": run.settings,
                "diverged": None,
                "rows": [],
                "arms": [],
            }
            for run in self.built.runs
        }

    def run(self) -> dict[str, Any] | None:
        """Train the unit to its last epoch. Returns the content of its file; None if it was to stop before."""
        start = self._resume()
        self.progress.unit_begins(start, self.study.epochs)
        schedule = _CheckpointSchedule(self.options, start)
        began = time.perf_counter()
        self.built.ensemble.ready()
        self.built.ensemble.wait()
        self.preparing += time.perf_counter() - began
        for epoch in range(start + 1, self.study.epochs + 1):
            if not self._train(epoch, schedule):
                return None
        runs = {run.id: self.runs[run.id] for run in self.unit.runs}
        return {**self._content(), "runs": runs, "epochs": self.study.epochs, "provenance": self._provenance()}

    def _train(self, epoch: int, schedule: _CheckpointSchedule) -> bool:
        """Train, record and save one epoch; False if training is to stop after it, before the unit is finished."""
        ensemble, recorded = self.built.ensemble, epoch in self.recorded
        began = time.perf_counter()
        ensemble.train_epoch(epoch - 1, watched=recorded)
        tally = ensemble.tally() if recorded else None
        last = epoch == self.study.epochs
        stop = not last and self.over()
        due = last or stop or schedule.is_due(epoch, recorded=recorded)
        if due or epoch in self.milestones:
            ensemble.wait()
        taken = time.perf_counter() - began
        self.seconds += taken
        if tally is not None:
            self._record(epoch, tally)
        if epoch in self.milestones:
            self._save(epoch, keep=True)
        if due:
            self._save(epoch)
            schedule.saved(epoch)
        diverged = sum(run["diverged"] is not None for run in self.runs.values())
        self.progress.epoch_done(epoch, diverged, taken)
        return not stop

    def _resume(self) -> int:
        checkpoint = self.checkpoints.latest(self.progress.say)
        if checkpoint is None or checkpoint.epoch > self.study.epochs:
            return 0
        self.built.ensemble.restore(checkpoint.tensors)
        content = checkpoint.content
        self.seconds, self.measuring, self.preparing = (
            float(content[name]) for name in ("seconds", "measuring", "preparing")
        )
        self.runs = {run: content["runs"][run] for run in self.runs}
        self.progress.say(f"{self.unit.id}: going on from the checkpoint after epoch {checkpoint.epoch}.")
        return checkpoint.epoch

    def _save(self, epoch: int, *, keep: bool = False) -> None:
        more = {"measuring": self.measuring, "preparing": self.preparing}
        self.checkpoints.save(epoch, {**self._content(), **more}, self.built.ensemble.state(), keep=keep)

    def _content(self) -> dict[str, Any]:
        return {
            "unit": self.unit.id,
            **_identity(self.study),
            "precision": self.options.precision,
            "dtype": DTYPE,
            "seconds": self.seconds,
            "runs": self.runs,
        }

    def _record(self, epoch: int, tally: EpochTally) -> None:
        began = time.perf_counter()
        measured = self.built.ensemble.measure()
        self.measuring += time.perf_counter() - began
        for place, run in enumerate(self.built.runs):
            means = self._means(tally, run.algorithm, place)
            losses = (measured.train_nll[place], measured.test_error[place], measured.test_nll[place])
            per_step = (means.pop("mean_lr", math.nan), means.pop("trials", 0.0), tally.gradient_norm[place])
            stored = self.runs[run.id]
            more = {name: float(value) for name, value in means.items()}
            numbers = map(float, (*losses, *per_step))
            stored["rows"].append([epoch, *numbers, tally.steps * epoch, self.seconds, more])
            stored["arms"] += [[epoch, arm, int(count)] for arm, count in enumerate(tally.arms[place]) if count]
            if not math.isfinite(measured.train_nll[place]) and stored["diverged"] is None:
                stored["diverged"] = epoch

    def _means(self, tally: EpochTally, algorithm: str, place: int) -> dict[str, float]:
        """The values of the algorithm's own measures for the run in this place, by name."""
        family, found = self.families[algorithm], {**tally.means, **tally.totals}
        for name in family.measures:
            if name not in found:
                raise SettingError(
                    f"The algorithm {family.algorithm} says that it measures {name}, but its update tallies "
                    f"{', '.join(found) or 'nothing'}; let it tally {name}, or take {name} out of `measures`."
                )
        return {name: found[name][place] for name in family.measures}

    def _provenance(self) -> dict[str, Any]:
        device = self.built.ensemble.data.train_x.device
        return {
            **versions(device),
            "precision": self.options.precision,
            **occasion(),
            "seconds": self.preparing + self.seconds + self.measuring,
            "training_seconds": self.seconds,
        }
