"""Races on the paper's problem: its network, images, first weights and order of the data, for 50 and for 500 epochs.

    python -m benchmarks.paper_races --out races --device cuda --jobs 14 --stop-after 480 --pack parts
    python -m benchmarks.paper_races --out races --unpack parts --device cuda --jobs 14 --stop-after 480 --pack parts
    python -m benchmarks.paper_races --out races --unpack parts --no-training
    python -m benchmarks.paper_races --out races --export results/races
    python -m benchmarks.paper_races --table results/races

The first command trains and writes all that there is into a few files, which can be carried to another machine; the
second one takes them from there and goes on. Single runs train side by side, the longest first. A run that is stopped,
or whose process is killed, goes on from its last checkpoint exactly. A finished run is one file of JSON. After the
epochs that the study records, a run is measured at the weights that `Race.eval` puts into the model. The last two
commands need pandas.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import origin, synchronize
from benchmarks.parts import pack, unpack
from hotswap.data import DATASETS
from hotswap.ensemble import TrainingData
from hotswap.ensemble.engine import allow_tf32, full_float32
from hotswap.errors import StudyError
from hotswap.files import replacing, write_text
from hotswap.networks import multilayer_perceptron
from hotswap.studies.paper import PAPER
from hotswap.studies.training import Held, on_device

LENGTHS = (50, 500)
COLUMNS = ("epoch", "train_nll", "test_error", "test_nll", "rate", "steps", "seconds")


class Run(NamedTuple):
    """One training."""

    epochs: int
    batch_size: int
    seed: int

    @property
    def id(self) -> str:
        return f"race-e{self.epochs}-b{self.batch_size}-s{self.seed}"

    def steps(self, images: int) -> int:
        return self.epochs * (images // self.batch_size)


class Settings(NamedTuple):
    """How to train, as against what."""

    device: str = "cpu"
    tf32: bool = True
    graphs: bool = False
    every: float = 60.0
    """Seconds from one checkpoint to the next, at least; they are written between epochs."""

    @property
    def precision(self) -> str:
        return "tf32" if self.tf32 and self.device != "cpu" else "fp32"


def recorded(epochs: int) -> frozenset[int]:
    """The epochs after which a run is measured: those of the study, and the last."""
    return frozenset(epoch for epoch in {*PAPER.recorded_epochs(), epochs} if epoch <= epochs)


@cache
def paper_data(device: str) -> Held:
    return on_device(DATASETS[PAPER.dataset](), PAPER, torch.device(device), torch.float32)


class Training:
    """A run before an epoch."""

    def __init__(self, run: Run, held: Held, settings: Settings, hidden: Sequence[int] = PAPER.network.hidden) -> None:
        self.run, self.settings, self.data = run, settings, held.tensors
        self.device = self.data.train_x.device
        network, images = PAPER.network, len(self.data.train_x)
        sizes = (self.data.train_x.shape[1], *hidden, held.classes)
        made = multilayer_perceptron(sizes, seed=run.seed, unit=network.unit, init=network.init)
        self.model = made.to(self.device)
        lanes = hotswap.lanes(self.model, muon=True)
        self.race = hotswap.Race(self.model, lanes, total_steps=run.steps(images))
        self.steps, self.epoch, self.seconds = images // run.batch_size, 0, 0.0
        self.rows: list[list[float]] = []
        self.pass_ = Graphed(self.model, run.batch_size, self.data) if settings.graphs else Eager(self.model)

    def train_epoch(self) -> None:
        """Full minibatches only, in the study's order, which its seed and the number of the epoch decide."""
        began = time.perf_counter()
        race, gradients, clear = self.race, self.pass_.gradients, self.pass_.clear
        for x, y in self.minibatches():
            race.step(gradients(x, y))
            clear()
        synchronize(self.device)
        self.seconds += time.perf_counter() - began
        self.epoch += 1
        if self.epoch in recorded(self.run.epochs):
            self.rows.append(self.measured())

    def minibatches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All of an epoch are gathered at once, so that a step only takes a view."""
        shuffle = torch.Generator().manual_seed(PAPER.data_seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.data.train_x), generator=shuffle)[: self.steps * self.run.batch_size]
        here = order.to(self.device)
        x = self.data.train_x[here].view(self.steps, self.run.batch_size, -1)
        y = self.data.train_y[here].view(self.steps, self.run.batch_size)
        return zip(x.unbind(), y.unbind(), strict=True)

    def measured(self) -> list[float]:
        """A row: the weights that the race would hand over now, in full float32."""
        rate = self.race.param_groups[0]["lr"]
        self.race.eval()
        try:
            with torch.no_grad(), full_float32():
                train_nll, _ = evaluated(self.model, self.data.train_x, self.data.train_y)
                test_nll, test_error = evaluated(self.model, self.data.test_x, self.data.test_y)
        finally:
            self.race.train()
        steps = self.epoch * self.steps
        return [self.epoch, train_nll, test_error, test_nll, rate, steps, self.seconds]

    def save(self, path: Path) -> None:
        """Write all that decides how the run goes on."""
        with replacing(path) as temporary:
            torch.save(
                {
                    "run": list(self.run),
                    "precision": self.settings.precision,
                    "graphs": self.settings.graphs,
                    "epoch": self.epoch,
                    "seconds": self.seconds,
                    "rows": self.rows,
                    "race": self.race.state_dict(),
                    "random": torch.get_rng_state(),
                },
                temporary,
            )

    def restore(self, path: Path) -> None:
        """Go on where the run was when it was saved."""
        saved = torch.load(path, map_location="cpu", weights_only=True)
        theirs = (Run(*saved["run"]).id, saved["precision"], saved["graphs"])
        if theirs != (ours := (self.run.id, self.settings.precision, self.settings.graphs)):
            told = "The checkpoint {} is of {} in {} with graphs={}, and not of {} in {} with graphs={}; remove it."
            raise StudyError(told.format(path, *theirs, *ours))
        self.race.load_state_dict(saved["race"])
        self.epoch, self.seconds, self.rows = saved["epoch"], saved["seconds"], saved["rows"]
        torch.set_rng_state(saved["random"])


def evaluated(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The mean loss and the error."""
    scores = model(x).double()
    return float(cross_entropy(scores, y)), float((scores.argmax(1) != y).double().mean())


class Eager:
    """Gradients as a training loop computes them."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.parameters = model, list(model.parameters())

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a minibatch; its gradients are there afterwards."""
        loss = cross_entropy(self.model(x), y)
        loss.backward()
        return loss

    def clear(self) -> None:
        """Forget them."""
        for p in self.parameters:
            p.grad = None


class Graphed:
    """Gradients from one CUDA graph, which is captured at the first minibatch; as in a loop if that fails."""

    def __init__(self, model: nn.Module, batch_size: int, data: TrainingData) -> None:
        self.eager, self.failed = Eager(model), False
        self.x, self.y = data.train_x[:batch_size].clone(), data.train_y[:batch_size].clone()
        self.graph: Any = None

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager.gradients(self.x, self.y)
                self.eager.clear()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):  # gradients are written anew by each replay
            self.loss = self.eager.gradients(self.x, self.y).detach()

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """See `Eager.gradients`."""
        if self.graph is None and not self.failed:
            try:
                self._capture()
            except RuntimeError as error:  # of torch or of CUDA
                self.failed, self.graph = True, None
                self.eager.clear()
                print(f"No CUDA graph, training without one: {' '.join(str(error).split())}", flush=True)
        if self.failed:
            return self.eager.gradients(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss

    def clear(self) -> None:
        """Nothing to do with a graph, whose memory the gradients are."""
        if self.failed:
            self.eager.clear()


def train(run: Run, folder: Path, settings: Settings, deadline: float, held: Held | None = None, **more: Any) -> str:
    """Train a run until it is done or the time is over; what happened, in a few words."""
    result, checkpoint = folder / f"{run.id}.json", folder / f"{run.id}.pt"
    if result.is_file():
        return f"{run.id}: there"
    if time.time() >= deadline:
        return f"{run.id}: left for another time"
    torch.set_num_threads(1)
    allow_tf32(settings.tf32)
    training = Training(run, held or paper_data(settings.device), settings, **more)
    if checkpoint.is_file():
        training.restore(checkpoint)
    saved = time.perf_counter()
    while training.epoch < run.epochs:
        training.train_epoch()
        over = time.time() >= deadline
        if over or time.perf_counter() - saved > settings.every:
            training.save(checkpoint)
            saved = time.perf_counter()
        if over and training.epoch < run.epochs:
            return f"{run.id}: saved after epoch {training.epoch} of {run.epochs}, {training.seconds:.0f} s"
    write_text(result, json.dumps(finished(training), indent=1) + "\n")
    checkpoint.unlink(missing_ok=True)
    end = dict(zip(COLUMNS, training.rows[-1], strict=True))
    told = f"objective {end['train_nll']:.2e}, test error {end['test_error']:.2%}, {training.seconds:.0f} s"
    return f"{run.id}: {told}, winner {training.race.standings()[0].name}"


def finished(training: Training) -> dict[str, Any]:
    """What is kept of a run."""
    settings, places = training.settings, training.race.standings()
    standings = [[one.name, one.rate, one.steps, one.loss, one.dropped_at, one.why] for one in places]
    return {
        **training.run._asdict(),
        "columns": list(COLUMNS),
        "rows": training.rows,
        "winner": standings[0][0],
        "standings": standings,
        "precision": settings.precision,
        "graphs": isinstance(training.pass_, Graphed) and not training.pass_.failed,
        "origin": {**origin(torch.device(settings.device)), "hotswap": hotswap.__version__},
    }


def train_all(runs: Sequence[Run], folder: Path, settings: Settings, jobs: int, seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    began, deadline = time.perf_counter(), time.time() + seconds
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        work = [pool.submit(train, run, folder, settings, deadline) for run in runs]
        for number, future in enumerate(as_completed(work), 1):
            print(f"[{number}/{len(work)}, {time.perf_counter() - began:.0f} s] {future.result()}", flush=True)


def to_carry(folder: Path) -> list[Path]:
    """Results first, then the checkpoints of the longest runs."""
    results = sorted(folder.glob("race-*.json"))
    known = {path.stem for path in results}
    checkpoints = [path for path in folder.glob("race-*.pt") if path.stem not in known]
    return results + sorted(checkpoints, key=lambda path: -_seconds(path))


def _seconds(checkpoint: Path) -> float:
    return float(torch.load(checkpoint, map_location="cpu", weights_only=True)["seconds"])


def packed(folder: Path, parts: Path, most: float) -> str:
    """Pack what is there; a sentence."""
    left = pack(to_carry(folder), parts, most=most)
    size = sum(path.stat().st_size for path in parts.glob("part-*.bin")) / 2**20
    lost = f"; no room for {', '.join(path.name for path in left)}, which begin anew elsewhere" if left else ""
    return f"Packed {size:.1f} MiB into {parts}{lost}."


def parsed() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add: Callable[..., Any] = parser.add_argument
    add("--out", type=Path, metavar="FOLDER", help="where runs and checkpoints are kept")
    add("--epochs", action="append", type=int, help=f"of a run; may be repeated; {LENGTHS} unless told")
    add("--batch-size", action="append", type=int, help="only this one; may be repeated")
    add("--seed", action="append", type=int, help="only this one; may be repeated")
    add("--device", default="cpu", help="cpu or cuda")
    add("--jobs", type=int, default=1, help="processes side by side")
    add("--precision", choices=["tf32", "fp32"], default="tf32", help="of products on a GPU; the study has tf32")
    add("--graphs", action="store_true", help="forward and backward as a CUDA graph")
    add("--stop-after", type=float, default=math.inf, metavar="SECONDS", help="save and stop after so long")
    add("--checkpoint-every", type=float, default=60.0, metavar="SECONDS", help="60 unless told")
    add("--pack", type=Path, metavar="FOLDER", help="write all into parts of less than 16 MiB there, after training")
    add("--most", type=float, default=60.0, metavar="MIB", help="that all parts may have together, 60 unless told")
    add("--unpack", type=Path, metavar="FOLDER", help="take runs and checkpoints from parts there, before training")
    add("--no-training", action="store_true", help="only pack, unpack or export")
    add("--export", type=Path, metavar="FOLDER", help="write tables of the finished runs there, and train nothing")
    add("--table", type=Path, metavar="FOLDER", help="print the tables there beside the study's, and train nothing")
    return parser, parser.parse_args()


def main() -> None:
    parser, options = parsed()
    if options.table is None and options.out is None:
        parser.error("say where runs are kept with --out FOLDER, or which table to print with --table FOLDER")
    if options.graphs and options.device == "cpu":
        parser.error("--graphs: CUDA graphs need --device cuda")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes
    if options.unpack is not None:
        print(f"Took {len(unpack(options.unpack, options.out))} files from {options.unpack}.")
    if options.export is None and options.table is None and not options.no_training:
        lengths, sizes = options.epochs or LENGTHS, options.batch_size or PAPER.batch_sizes
        runs = [Run(*one) for one in product(lengths, sizes, options.seed or PAPER.seeds)]
        runs.sort(key=lambda run: -run.steps(PAPER.train_images or 0))
        settings = Settings(options.device, options.precision == "tf32", options.graphs, options.checkpoint_every)
        train_all(runs, options.out, settings, options.jobs, options.stop_after)
    if options.pack is not None:
        print(packed(options.out, options.pack, options.most))
    if options.export is not None or options.table is not None:
        from benchmarks import paper_races_table  # noqa: PLC0415 - pandas is not on every machine that trains

        if options.export is not None:
            print(paper_races_table.export(options.out, options.export))
        if options.table is not None:
            print(paper_races_table.table(options.table))


if __name__ == "__main__":
    main()
