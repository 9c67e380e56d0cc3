"""The cost of a run that is trained alone: the paper's Tables 1 and 2, and the twelve runs of its Figure 2.

An ensemble's clock says nothing about a single run, so these train one run at a time, with the same engine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hotswap.data import Dataset
from hotswap.ensemble import Ensemble
from hotswap.errors import StudyError
from hotswap.files import explained, replacing
from hotswap.store import Checkpoint, Checkpoints
from hotswap.studies.export import SINGLES
from hotswap.studies.folder import Store
from hotswap.studies.rows import best_runs
from hotswap.studies.run import run_study
from hotswap.studies.study import RunSpec, StudySpec, Unit, plan
from hotswap.studies.training import Held, RunOptions, assemble, milestones, set_up
from hotswap.work import Listener

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TimingRow", "single_runs", "time_minibatches", "write_curves", "write_timings"]

REPEATS, SECONDS = 3, 1.0  # at least so many epochs are timed, for at least so long; the median counts


@dataclass(frozen=True)
class TimingRow:
    """One cell of Tables 1 and 2.

    Attributes:
        algorithm: The name of the algorithm.
        batch_size: Samples per minibatch.
        epoch: The epoch whose weights it started from; 0 for freshly initialised ones.
        milliseconds: Per minibatch (Table 1).
        seconds: Per epoch (Table 2).
        trials: Mean number of trials per step; 0 for algorithms without a search.
        device: The device that it ran on.
        precision: The precision of its matrix products.
        torch: The version.
    """

    algorithm: str
    batch_size: int
    epoch: int
    milliseconds: float
    seconds: float
    trials: float
    device: str
    precision: str
    torch: str


def time_minibatches(store: Store, data: Dataset, options: RunOptions) -> Iterator[TimingRow]:
    """Time each algorithm and batch size of a study, from fresh weights.

    An algorithm that chooses among learning rates may search for as long as it has to, so its cost changes as training
    goes on: it is timed from its weights at the study's milestones instead. That is not so where it was trained as one
    with others, whose checkpoints do not tell what belongs to which run.

    Raises:
        StudyError: The weights of a milestone are not there.
    """
    chosen = {
        (run.batch_size, run.algorithm): (study, run)
        for study in reversed(_extents(store))
        for run in study.runs()[::-1]
    }
    held = set_up(store.study, data, options)
    for (_, algorithm), (study, run) in sorted(chosen.items(), key=lambda item: item[0]):
        alone = any(unit.families == (algorithm,) for unit in plan(study))
        for epoch in milestones(store.epochs) if alone and study.family(algorithm).arms() else (0,):
            yield _time(store, study, run, epoch, held, options)


def _extents(store: Store) -> list[StudySpec]:
    """The study in each extent in which it was asked for: its parts may have been run one by one."""
    return [replace(study, epochs=store.epochs) for study in store.specs()]


def _time(store: Store, study: StudySpec, run: RunSpec, epoch: int, held: Held, options: RunOptions) -> TimingRow:
    unit = Unit(algorithm=run.algorithm, batch_size=run.batch_size, runs=(run,))
    ensemble = assemble(study, unit, held).ensemble
    if epoch:
        checkpoint = _kept(store, run, epoch)
        if checkpoint is None:
            raise StudyError(
                f"The weights of {unit.id} after epoch {epoch} are not in {store.folder}; timing starts from the "
                "checkpoints of a finished study, on the machine that ran it."
            )
        ensemble.restore(_row_of(checkpoint, run))
    timed = list(_timed_epochs(ensemble, epoch))
    seconds = statistics.median(taken for taken, _ in timed)
    device = held.tensors.train_x.device
    return TimingRow(
        algorithm=run.algorithm,
        batch_size=run.batch_size,
        epoch=epoch,
        milliseconds=1e3 * seconds / ensemble.steps,
        seconds=seconds,
        trials=statistics.fmean(trials for _, trials in timed),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        precision=options.precision,
        torch=torch.__version__,
    )


def _timed_epochs(ensemble: Ensemble, epoch: int) -> Iterator[tuple[float, float]]:
    """Seconds that an epoch of one run took, and its trials per step, again and again from the same weights.

    Epochs of large minibatches take a hundredth of a second, too little for a few of them to say anything.
    """
    start = {name: tensor.clone() for name, tensor in ensemble.state().items()}
    ensemble.train_epoch(epoch, watched=False)  # warms up
    repeats, spent = 0, 0.0
    while repeats < REPEATS or spent < SECONDS:
        ensemble.restore(start)
        ensemble.wait()
        began = time.perf_counter()
        ensemble.train_epoch(epoch, watched=False)
        ensemble.wait()
        taken = time.perf_counter() - began
        repeats, spent = repeats + 1, spent + taken
        yield taken, ensemble.tally().means.get("trials", [0.0])[0]


def _kept(store: Store, run: RunSpec, epoch: int) -> Checkpoint | None:
    """The checkpoint of an epoch that holds the run's weights, in whatever unit it was trained."""
    for folder in sorted((store.folder / "checkpoints").glob(f"{run.algorithm}-b{run.batch_size}-*")):
        checkpoint = Checkpoints(folder).kept(epoch)
        if checkpoint is not None and run.id in checkpoint.content["runs"]:
            return checkpoint
    return None


def _row_of(checkpoint: Checkpoint, run: RunSpec) -> dict[str, Tensor]:
    """The tensors of one run in a checkpoint. A tensor without an axis for runs, such as a count of steps, is whole."""
    runs = list(checkpoint.content["runs"])
    row = runs.index(run.id)
    return {
        name: tensor[row : row + 1] if tensor.dim() and len(tensor) == len(runs) else tensor
        for name, tensor in checkpoint.tensors.items()
    }


def single_runs(store: Store, data: Dataset, options: RunOptions, listener: Listener) -> pd.DataFrame:
    """Train, one at a time, the runs that stand for each algorithm.

    An algorithm whose settings vary between runs is represented by its best runs in retrospect (see `best_runs`), any
    other by the first seed of each batch size. They live in the study's folder `singles` and go on where they were,
    like any study. Returns their metrics, whose `seconds` are wall-clock training time.
    """
    alone = replace(options, max_runs=1)
    folder = store.folder / SINGLES
    for part in (*_adaptive(store), *_best(store)):
        own = Store.create(folder, part, precision=options.precision, max_runs=1)
        run_study(own, part, data, alone, listener)
    return Store.open(folder).metrics()


def _adaptive(store: Store) -> Iterator[StudySpec]:
    """The parts of the study whose algorithms have one setting each, with one seed."""
    for study in _extents(store):
        names = [family.name for family in study.families if not family.varied()]
        if names:
            yield study.select(algorithms=names, seeds=1)


def _best(store: Store) -> Iterator[StudySpec]:
    """The best runs of each algorithm whose settings vary, each as a study of this one run."""
    extents, metrics = _extents(store), store.metrics()
    runs = {run.id: (study, run) for study in extents for run in study.runs()}
    tuned = [family.name for study in extents for family in study.families if family.varied()]
    for name in dict.fromkeys(tuned):
        for best in best_runs(metrics, name):
            study, run = runs[best]
            yield _only(study, run)


def _only(study: StudySpec, run: RunSpec) -> StudySpec:
    """The study with this one run in it."""
    varied: dict[str, Any] = {name: (value,) for name, value in run.settings.items()}
    family = replace(study.family(run.algorithm), **varied)
    others = tuple(other for other in (*study.families, *study.set_aside) if other.name != run.algorithm)
    return replace(study, families=(family,), set_aside=others, batch_sizes=(run.batch_size,), seeds=(run.seed,))


def write_timings(rows: Sequence[TimingRow], store: Store) -> None:
    """Write the timings into the study's folder, whole or not at all."""
    import pandas as pd  # noqa: PLC0415  # only who writes tables needs it

    _write(pd.DataFrame([asdict(row) for row in rows]), store.folder / "timing.parquet")


def write_curves(store: Store, frame: pd.DataFrame) -> None:
    """Write the single runs into the study's folder."""
    _write(frame, store.folder / "curves.parquet")


def _write(frame: pd.DataFrame, path: Path) -> None:
    with explained(path.parent), replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)
