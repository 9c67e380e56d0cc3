"""What it costs to keep a real training loop right: `python -m benchmarks.step_cost --real`.

Measured in hot-swapped steps of networks of 20 M weights: one with batch norm, one with dropout, and one whose steps
are as short as they can be. What all protections cost together is how much longer a step is with them than without,
taken in turns. Each of them is also timed where it happens. On a GPU that is the host's time, without waiting for the
device; where the device is behind, the host's time is hidden, and the sum is more than what is added to a step.

Every step here has two trials, so that steps are alike: without its random numbers a search walks elsewhere.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import describe, keep, seconds
from benchmarks.networks import Convolutions, Tagger, images, pictures, tokens, wide_network
from hotswap.arrays import Array
from hotswap.optim.gradients import FiniteCheck
from hotswap.optim.moves import Move
from hotswap.optim.processes import Agreement
from hotswap.optim.surroundings import BufferSnapshot, RandomState, Surroundings
from hotswap.searches import DownwardSearch


@dataclass
class Clock:
    """Seconds spent in functions, by name; what is timed inside another is not the other's, nor is the clock's own."""

    spent: dict[str, float] = field(default_factory=dict)
    _inside: float = 0.0

    def around(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        self.spent.setdefault(name, 0.0)

        def timed(*args: object, **kwargs: object) -> object:
            entered, outside = time.perf_counter(), self._inside
            self._inside = 0.0
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] += time.perf_counter() - began - self._inside
                self._inside = outside + time.perf_counter() - entered

        return timed


PIECES = (
    ("random numbers", RandomState, "read"),
    ("random numbers", RandomState, "write"),
    ("buffers", BufferSnapshot, "read"),
    ("buffers", BufferSnapshot, "write"),
    ("buffers", BufferSnapshot, "note_versions"),
    ("buffers", BufferSnapshot, "restore_versions"),
    ("modules", Surroundings, "_survey"),
    ("modules", Surroundings, "_read_after"),
    ("modules", Surroundings, "_drop_stale_weights"),
    ("finite gradient", FiniteCheck, "ask"),
    ("finite gradient", Move, "check_gradients"),
)
COMMAND = "python -m benchmarks.step_cost --real"
PROTECTIONS = tuple(dict.fromkeys(name for name, *_ in PIECES))
TRIALS = 2
WARM_UP = 8


@dataclass(frozen=True)
class TwoTrials(DownwardSearch):
    """Two neighbouring arms, whatever their losses are."""

    headroom: int = 1
    max_trials: int | None = TRIALS

    def is_last(self, improved: Array, previous: Array, loss: Array) -> Array:
        return improved & False


@contextmanager
def exchanged(functions: list[Callable[..., object]]) -> Iterator[None]:
    """Other functions in the place of those that protect, for a while."""
    own = [getattr(owner, attribute) for _, owner, attribute in PIECES]
    try:
        for (_, owner, attribute), function in zip(PIECES, functions, strict=True):
            setattr(owner, attribute, function)
        yield
    finally:
        for (_, owner, attribute), function in zip(PIECES, own, strict=True):
            setattr(owner, attribute, function)


def unprotected() -> AbstractContextManager[None]:
    """Steps as they would be if nobody looked after anything; there are no random numbers to write back."""
    return exchanged([lambda *_, **__: [] for _ in PIECES])


def timed(clock: Clock) -> AbstractContextManager[None]:
    """Steps whose protections are timed."""
    return exchanged([clock.around(name, getattr(owner, attribute)) for name, owner, attribute in PIECES])


@dataclass(frozen=True)
class Measured:
    """Seconds a step: with and without all protections, and the time in each of them.

    Medians, since a machine that pauses does not pause for the one or the other.
    """

    step: float
    bare: float
    longer: float
    """By how much a step is longer than the one without protections that was taken beside it."""
    unsure: float
    """The standard error of that."""
    spent: dict[str, float]

    @property
    def share(self) -> float:
        """What the protections add, of a step with them."""
        return self.longer / self.step


def measure(
    network: Callable[[], nn.Module], batch: tuple[Tensor, Tensor], device: torch.device, rounds: int
) -> Measured:
    step, bare = _stepping(network, batch, device), _stepping(network, batch, device)
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds + WARM_UP):
        taken = without = 0.0
        for protected in (True, False) if turn % 2 else (False, True):
            if protected:
                taken = seconds(step, device)
            else:
                with unprotected():
                    without = seconds(bare, device)
        pairs.append((taken, without))
    pairs = pairs[WARM_UP:]
    clock = Clock()
    with timed(clock):
        for _ in range(rounds):
            step()
    longer = [taken - without for taken, without in pairs]
    lower, _, upper = quantiles(longer, n=4)
    return Measured(
        step=median(taken for taken, _ in pairs),
        bare=median(without for _, without in pairs),
        longer=median(longer),
        unsure=1.2533 * (upper - lower) / 1.349 / rounds**0.5,  # of a median, by the quartiles
        spent={name: clock.spent[name] / rounds for name in PROTECTIONS},
    )


def _stepping(
    network: Callable[[], nn.Module], batch: tuple[Tensor, Tensor], device: torch.device
) -> Callable[[], object]:
    torch.manual_seed(0)
    model = network().to(device)
    rates = hotswap.log_grid(1, 1e-3, 7)
    optimizer = hotswap.HotSwapSGD(model.parameters(), rates, search=TwoTrials(), check_closure=False)
    x, y = (part.to(device) for part in batch)
    return lambda: optimizer.step(lambda: cross_entropy(model(x), y))


def protections(device: torch.device, *, quick: bool, folder: Path | None = None) -> Table:
    """A table of what each protection adds, on one device."""
    decision = one_decision(20 if quick else 500)
    table = Table(
        title=describe(device),
        caption="each protection: ms a trial, with its share of what a step does once. Together they make a step "
        "longer by the last column: aim at most 5 % of it. "
        f"Where two processes train together (gloo), one decision costs {1e3 * decision:.3f} ms a trial more.",
    )
    for column in ("network", "step", "without", *PROTECTIONS, "together", "longer by"):
        table.add_column(column, justify="left" if column == "network" else "right")
    rows: list[dict[str, Any]] = []
    rounds = 4 if quick else (20 if device.type == "cpu" else 400)
    for name, network, batch in (
        ("convolutions, 20 M, batch 32", Convolutions, lambda: pictures(32)),
        ("transformer, 23 M, batch 64", lambda: Tagger(dropout=0.1), lambda: tokens(64)),
        ("784-4096-4096-10, 20 M, batch 64", wide_network, lambda: images(64)),
    ):
        measured = measure(network, batch(), device, rounds)
        rows.append({"network": name, "trials": TRIALS, **asdict(measured)})
        table.add_row(name, *_row(measured))
    if folder is not None:
        keep(folder, "protections", device, rows, one_decision=decision, command=COMMAND)
    return table


def _row(measured: Measured) -> list[str]:
    each = [1e3 * spent / TRIALS for spent in (*measured.spent.values(), sum(measured.spent.values()))]
    share = f"{measured.share:.1%} ± {measured.unsure / measured.step:.1%}"
    return [f"{1e3 * measured.step:.2f}", f"{1e3 * measured.bare:.2f}", *(f"{ms:.3f}" for ms in each), share]


def one_decision(rounds: int) -> float:
    """Seconds to average a trial's loss over two processes on one machine."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_decide, args=(Path(folder), rounds), nprocs=2)
        return float((Path(folder) / "seconds").read_text())


def _decide(rank: int, folder: Path, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(folder / "meet").as_uri(), rank=rank, world_size=2)
    loss = torch.tensor(1.0)
    agreement = Agreement(None, torch.optim.SGD([nn.Parameter(torch.ones(1))]))
    agreement.look()
    for _ in range(10):
        agreement.mean(loss)
    began = time.perf_counter()
    for _ in range(rounds):
        agreement.mean(loss)
    if rank == 0:
        (folder / "seconds").write_text(str((time.perf_counter() - began) / rounds))
    dist.destroy_process_group()
