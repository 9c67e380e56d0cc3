"""What one run costs when it runs alone: the paper's Tables 1 and 2, and the twelve runs of its Figure 2.

An ensemble's clock says nothing about a single run, so these train one run at a time, with the same engine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hotswap.data import Dataset
from hotswap.ensemble import Ensemble, TrainingData
from hotswap.ensemble.snapshots import Snapshot, load_kept
from hotswap.errors import StudyError
from hotswap.files import replacing
from hotswap.studies.exchange.single_runs import SINGLES, keep_singles
from hotswap.studies.running.assemble import build
from hotswap.studies.running.train import Listener, RunOptions, milestones, run_study, set_up
from hotswap.studies.specification.families import SgdFamily
from hotswap.studies.specification.plan import Unit
from hotswap.studies.specification.study import RunSpec, StudySpec
from hotswap.studies.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TimingRow", "best_sgd", "single_runs", "time_minibatches", "write_curves", "write_table"]

REPEATS, SECONDS = 3, 1.0  # at least so many epochs are timed, for at least so long; the median counts


@dataclass(frozen=True)
class TimingRow:
    """One cell of Tables 1 and 2.

    Attributes:
        algorithm: Which one.
        batch_size: Samples per minibatch.
        epoch: The epoch whose weights it started from; 0 for freshly initialised ones.
        milliseconds: Per minibatch (Table 1).
        seconds: Per epoch (Table 2).
        trials: Mean number of trials per step; 0 for algorithms without a search.
        device: What it ran on.
        precision: Of its matrix products.
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
    """Time each algorithm and batch size of a study; DUCB from its weights at the study's milestones.

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
        for epoch in milestones(store.epochs) if algorithm == "ducb" else (0,):
            yield _time(store, study, run, epoch, held, options)


def _extents(store: Store) -> list[StudySpec]:
    """The study in each extent in which it was asked for: its parts may have been run one by one."""
    return [replace(study, epochs=store.epochs) for study in store.specs()]


def _time(
    store: Store, study: StudySpec, run: RunSpec, epoch: int, held: TrainingData, options: RunOptions
) -> TimingRow:
    unit = Unit(algorithm=run.algorithm, batch_size=run.batch_size, runs=(run,))
    ensemble = build(study, unit, held).ensemble
    if epoch:
        checkpoint = _kept(store, run, epoch)
        if checkpoint is None:
            raise StudyError(
                f"The weights of {unit.id} after epoch {epoch} are not in {store.folder}; timing starts from the "
                "checkpoints of a finished study, on the machine that ran it."
            )
        row = checkpoint.notes["runs"].index(run.id)
        for name, tensor in ensemble.update.state().items():
            tensor.copy_(checkpoint.tensors[name][row : row + 1])
    timed = list(_timed_epochs(ensemble, epoch))
    seconds = statistics.median(taken for taken, _ in timed)
    device = held.train_x.device
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
    state = ensemble.update.state()
    start = {name: tensor.clone() for name, tensor in state.items()}
    ensemble.train_epoch(epoch, watched=False)  # warms up
    repeats, spent = 0, 0.0
    while repeats < REPEATS or spent < SECONDS:
        for name, tensor in state.items():
            tensor.copy_(start[name])
        ensemble.wait()
        began = time.perf_counter()
        ensemble.train_epoch(epoch, watched=False)
        ensemble.wait()
        taken = time.perf_counter() - began
        repeats, spent = repeats + 1, spent + taken
        yield taken, ensemble.tally().means.get("trials", [0.0])[0]


def _kept(store: Store, run: RunSpec, epoch: int) -> Snapshot | None:
    """The checkpoint of an epoch that holds the run's weights, in whatever unit it was trained."""
    for folder in sorted((store.folder / "checkpoints").glob(f"{run.algorithm}-b{run.batch_size}-*")):
        checkpoint = load_kept(folder, epoch)
        if checkpoint is not None and run.id in checkpoint.notes["runs"]:
            return checkpoint
    return None


def best_sgd(metrics: pd.DataFrame) -> list[RunSpec]:
    """The two SGD runs chosen in retrospect: lowest training loss and lowest test error at the last epoch."""
    last = metrics[(metrics["algorithm"] == "sgd") & (metrics["epoch"] == metrics["epoch"].max())]
    if last.empty:
        return []
    chosen = [last.loc[last["train_nll"].idxmin()], last.loc[last["test_error"].idxmin()]]
    specs = [
        RunSpec(
            algorithm="sgd",
            batch_size=int(row["batch_size"]),
            seed=int(row["seed"]),
            lr=float(row["lr"]),
            lr_decay=float(row["lr_decay"]),
            momentum=float(row["momentum"]),
        )
        for row in chosen
    ]
    return list(dict.fromkeys(specs))


def single_runs(
    store: Store, data: Dataset, options: RunOptions, listener: Listener, sgd: Sequence[RunSpec]
) -> pd.DataFrame:
    """Train one run of each adaptive algorithm and batch size, and the given SGD runs, one at a time.

    They live in the study's folder `singles` and go on where they were, like any study. Returns their metrics, whose
    `seconds` are wall-clock training time.
    """
    alone = replace(options, max_runs=1)
    parts = []
    for study in _extents(store):
        adaptive = [name for name in study.algorithms if name != "sgd"]
        parts += [study.select(algorithms=adaptive, seeds=1)] if adaptive else []
    parts += [_only(store.study, run) for run in sgd]
    folder = store.folder / SINGLES
    for part in parts:
        with Store.create(folder, part, precision=options.precision, max_runs=1) as own:
            run_study(own, part, data, alone, listener)
    with Store.open(folder) as own:
        return own.metrics()


def _only(study: StudySpec, run: RunSpec) -> StudySpec:
    """The study with this one SGD run in it."""
    assert run.lr is not None  # a run of SGD has all three
    assert run.lr_decay is not None
    assert run.momentum is not None
    family = SgdFamily(lr=(run.lr,), lr_decay=(run.lr_decay,), momentum=(run.momentum,))
    others = tuple(f for f in (*study.families, *study.set_aside) if f.algorithm != "sgd")
    return replace(study, families=(family,), set_aside=others, batch_sizes=(run.batch_size,), seeds=(run.seed,))


def write_table(rows: Sequence[TimingRow], path: Path) -> None:
    """Write the timings as a Parquet file, whole or not at all."""
    import pandas as pd  # noqa: PLC0415  # only who writes tables needs it

    with replacing(path) as temporary:
        pd.DataFrame([asdict(row) for row in rows]).to_parquet(temporary, index=False)


def write_curves(store: Store, frame: pd.DataFrame) -> None:
    """Write the single runs into the study's folder, with what trained them."""
    with Store.open(store.folder / SINGLES) as own, replacing(store.folder / "curves.parquet") as temporary:
        frame.to_parquet(temporary, index=False)
        keep_singles(store.folder, temporary, own.provenance())
