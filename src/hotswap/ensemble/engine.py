"""The training loop of an ensemble: updates, epochs of all runs, and the evaluation of each run.

An `Update` trains the parameters of R runs, step by step. Every tensor that outlives a step is kept and written in
place, so that a GPU captures a step once in a CUDA graph and replays it. An `Ensemble` gives the update minibatches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from hotswap.ensemble.kernels import mean_loss
from hotswap.ensemble.model import Model
from hotswap.errors import CheckpointError

__all__ = [
    "Ensemble",
    "EpochTally",
    "Measured",
    "Tally",
    "TrainingData",
    "Update",
    "allow_tf32",
    "copy_by_name",
    "full_float32",
]

EVALUATION_BYTES = 2**31  # bytes of activations while evaluating, about


@dataclass
class Tally:
    """Sums over the steps of an epoch, one value per run, float64."""

    sums: dict[str, Tensor]
    """`(R,)` each: what the update has declared, such as `mean_lr` and `trials`; the engine divides by the steps."""
    norm: Tensor
    """`(R,)` the sum of the gradient norms."""
    norms: Tensor
    """`(R,)` how many gradient norms were summed."""
    arms: Tensor
    """`(R, K)` how often each arm was taken; K = 0 for algorithms without arms."""
    totals: dict[str, Tensor] = field(default_factory=dict)
    """`(R,)` each: sums over the whole run, which no epoch clears; an update keeps them in its state."""

    @classmethod
    def zero(cls, runs: int, arms: int, names: Sequence[str], device: torch.device) -> Tally:
        """Nothing counted yet."""
        norm, norms, *sums = torch.zeros(2 + len(names), runs, dtype=torch.float64, device=device).unbind()
        taken = torch.zeros(runs, arms, dtype=torch.float64, device=device)
        return cls(dict(zip(names, sums, strict=True)), norm, norms, taken)

    def clear(self) -> None:
        """Start a new epoch."""
        for tensor in (self.norm, self.norms, self.arms, *self.sums.values()):
            tensor.zero_()

    def add_norm_of(self, direction: Tensor) -> None:
        """Count the Euclidean norm of the gradients `(R, P)` of a step."""
        self.norm += torch.linalg.vector_norm(direction, dim=1)
        self.norms += 1


class Update(ABC):
    """The parameters of R runs and what trains them. `theta` has a row for each run."""

    def __init__(self, model: Model, theta: Tensor, sums: Sequence[str] = (), arms: int = 0) -> None:
        self.model, self.theta = model, theta
        self.watched = True
        self.tally = Tally.zero(len(theta), arms, sums, theta.device)

    def begin(self, steps: int) -> None:  # noqa: B027  # most do not care
        """Called by the ensemble before anything is trained: an epoch has so many steps."""

    @abstractmethod
    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """The pieces of a step, each of which can be captured in a graph of its own; called with a minibatch."""

    looks_ahead: bool = False
    """Whether a step reads `next_minibatch`, inputs and labels of the minibatch after its own."""
    next_minibatch: tuple[Tensor, Tensor]

    openings: frozenset[str]
    """The pieces with one of which a step begins: they are given the next minibatch."""

    @abstractmethod
    def step(self, run: Callable[[str], None], number: int) -> None:
        """One step: `run(name)` executes a piece. `number` counts the steps of an epoch."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides what the next steps do; the very tensors, so that copying into them restores."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the tensors of a snapshot, by the names that `state` gave them.

        Raises:
            CheckpointError: One of them is missing or has another shape.
        """
        copy_by_name(tensors, self.state())

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """Called before the steps of epoch number `epoch`, counted from 0; `watched`: its tally will be read."""
        self.watched = watched
        self.tally.clear()


@dataclass(frozen=True)
class TrainingData:
    """Inputs `(N, ...)` of any shape and labels `(N,)`, all of them on the device."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass(frozen=True)
class EpochTally:
    """Counts and means of an epoch, one value per run, on the host."""

    means: dict[str, list[float]]
    """The mean over the steps of everything that the update sums, by name: `mean_lr` and `trials`, for instance."""
    gradient_norm: list[float]
    """The mean over the steps that computed it; NaN if none did, as in an epoch that was not watched."""
    arms: list[list[float]]
    """The number of steps that took each arm; empty for algorithms without arms."""
    steps: int
    totals: dict[str, list[float]] = field(default_factory=dict)
    """Sums over the whole run so far, by name."""


@dataclass(frozen=True)
class Measured:
    """Losses and errors of the runs: one value per run, on the host."""

    train_nll: list[float]
    test_nll: list[float]
    test_error: list[float]


class Ensemble:
    """R runs on one device that share every minibatch."""

    def __init__(self, update: Update, data: TrainingData, batch_size: int, data_seed: int) -> None:
        self._buffers = {f"model/{name}": tensor for name, tensor in update.model.begin(update.theta).items()}
        ready = update.model.prepare
        data = replace(data, train_x=ready(data.train_x), test_x=ready(data.test_x))
        self.update, self.data, self.batch_size, self.data_seed = update, data, batch_size, data_seed
        self.steps = len(data.train_x) // batch_size  # full minibatches only
        update.begin(self.steps)
        device = data.train_x.device
        self._order = torch.zeros((self.steps + 1, batch_size), dtype=torch.int64, device=device)
        self._now = torch.zeros(1, dtype=torch.int64, device=device)
        self._x = torch.zeros_like(data.train_x[:batch_size])
        self._y = torch.zeros_like(data.train_y[:batch_size])
        if update.looks_ahead:
            update.next_minibatch = torch.zeros_like(self._x), torch.zeros_like(self._y)
        self._parts: dict[str, Callable[[], None]] | None = None

    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides what the next steps do: the update's, and the buffers of the model.

        They are the very tensors, so that copying into them restores. All of it is what a checkpoint must hold.
        """
        return {**self.update.state(), **self._buffers}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the tensors of a snapshot, by the names that `state` gave them.

        Raises:
            CheckpointError: One of them is missing or has another shape.
        """
        self.update.restore(tensors)
        copy_by_name(tensors, self._buffers)

    def train_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """Train through epoch `epoch`, counted from 0. The order of the data depends on it and `data_seed` alone.

        Gradient norms cost time and change no result: they are computed only if the epoch is `watched`. A GPU may still
        be at work when this returns; see `wait`.
        """
        parts = self.ready()
        used = self.steps * self.batch_size
        self._order[: self.steps] = self._shuffled(epoch)[:used].view(self.steps, self.batch_size)
        if self.update.looks_ahead:  # after the last minibatch comes the first of the next epoch
            self._order[self.steps] = self._shuffled(epoch + 1)[: self.batch_size]
        self._now.zero_()
        self.update.begin_epoch(epoch, watched=watched)
        for number in range(self.steps):
            self.update.step(lambda name: parts[name](), number)

    def _shuffled(self, epoch: int) -> Tensor:
        """The training samples in the order in which an epoch sees them."""
        shuffle = torch.Generator().manual_seed(self.data_seed * 1_000_003 + epoch)
        return torch.randperm(len(self.data.train_x), generator=shuffle)

    def wait(self) -> None:
        """Return when the device has finished all work that it was given."""
        if self.data.train_x.is_cuda:
            torch.cuda.synchronize(self.data.train_x.device)

    def tally(self) -> EpochTally:
        """The means of the latest epoch; waits for it."""
        tally = self.update.tally
        return EpochTally(
            means={name: (total / self.steps).tolist() for name, total in tally.sums.items()},
            gradient_norm=(tally.norm / tally.norms).tolist(),
            arms=tally.arms.tolist(),
            steps=self.steps,
            totals={name: total.tolist() for name, total in tally.totals.items()},
        )

    def _load(self) -> None:
        """Copy the next minibatch into the tensors that every piece of a step reads."""
        self._read(self._x, self._y)
        self._now += 1
        if self.update.looks_ahead:
            self._read(*self.update.next_minibatch)

    def _read(self, x: Tensor, y: Tensor) -> None:
        rows = self._order.index_select(0, self._now).view(-1)
        torch.index_select(self.data.train_x, 0, rows, out=x)
        torch.index_select(self.data.train_y, 0, rows, out=y)

    def ready(self) -> dict[str, Callable[[], None]]:
        """The pieces of a step; on a GPU each is a CUDA graph, which the first call captures."""
        if self._parts is None:
            pieces = {
                name: partial(self._piece, piece, opens=name in self.update.openings)
                for name, piece in self.update.parts().items()
            }
            self._parts = self._capture(pieces) if self.data.train_x.is_cuda else dict(pieces)
        return self._parts

    def _piece(self, piece: Callable[[Tensor, Tensor], None], *, opens: bool) -> None:
        if opens:
            self._load()
        piece(self._x, self._y)

    def _capture(self, pieces: Mapping[str, Callable[[], None]]) -> dict[str, Callable[[], None]]:
        """Warm each piece up on a side stream, capture it, and put the state back to where it was."""
        saved = {name: tensor.clone() for name, tensor in self.state().items()}
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                for piece in pieces.values():
                    self._now.zero_()
                    piece()
        torch.cuda.current_stream().wait_stream(side)
        graphs: dict[str, Callable[[], None]] = {}
        for name, piece in pieces.items():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                piece()
            graphs[name] = graph.replay
        for name, tensor in self.state().items():
            tensor.copy_(saved[name])
        return graphs

    @torch.no_grad()
    def measure(self) -> Measured:
        """Loss and error of every run on all training and test samples, in full float32."""
        with full_float32():
            train_nll, _ = self._evaluate(self.data.train_x, self.data.train_y)
            test_nll, test_error = self._evaluate(self.data.test_x, self.data.test_y)
        return Measured(train_nll.tolist(), test_nll.tolist(), test_error.tolist())

    def _evaluate(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        theta, model = self.update.theta, self.update.model
        nll = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        wrong = torch.zeros_like(nll)
        chunk = max(1, EVALUATION_BYTES // model.sample_bytes(theta, x))
        for part_x, part_y in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
            scores = model.scores(theta, part_x).double()
            nll += mean_loss(scores, part_y) * len(part_y)
            wrong += (scores.argmax(-1) != part_y).sum(-1)
        broken = ~theta.isfinite().all(1)
        return torch.where(broken, torch.nan, nll / len(y)), wrong / len(y)


def copy_by_name(saved: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a snapshot into those of a state, all of them or none.

    Raises:
        CheckpointError: One of them is missing or has another shape.
    """
    for name, tensor in state.items():
        if name not in saved:
            raise CheckpointError(
                f"The snapshot is of another algorithm or network: it has no {name!r}; continue with what wrote it."
            )
        if saved[name].shape != tensor.shape:
            raise CheckpointError(
                f"The snapshot is of other runs: its {name!r} has the shape {tuple(saved[name].shape)}, but "
                f"{tuple(tensor.shape)} is needed; continue with the runs that it was written with."
            )
    for name, tensor in state.items():
        tensor.copy_(saved[name])


def allow_tf32(allowed: bool) -> None:
    """Let matrix products and convolutions round their factors to TF32 (10 bits of mantissa), or forbid it.

    Torch by itself forbids it in matrix products and allows it in convolutions.
    """
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute in full float32 inside the block, and as before after it."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    allow_tf32(False)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
