"""What it costs to keep a real training loop right: `python -m benchmarks.step_cost --real`.

Each protection is timed where it happens, in hot-swapped steps of networks of 20 M weights: one with batch norm, one
with dropout, and one whose steps are as short as they can be. Beside it stands the time of whole steps that are not
timed inside. On a GPU it is the host's time, without waiting for the device: what is launched is small, and where the
device is behind, the host's time is hidden and counts less.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import describe, keep, side_by_side
from benchmarks.networks import Convolutions, Tagger, images, pictures, tokens, wide_network
from hotswap.optim.agreement import Agreement
from hotswap.optim.guards import Guard
from hotswap.optim.guards.buffers import Page
from hotswap.optim.guards.randomness import Randomness
from hotswap.optim.moves.base import Move


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
    ("random numbers", Randomness, "read"),
    ("random numbers", Randomness, "write"),
    ("buffers", Page, "read"),
    ("buffers", Page, "write"),
    ("modules", Guard, "_survey"),
    ("modules", Guard, "_read_after"),
    ("modules", Guard, "_reshard"),
    ("finite gradient", Move, "look_at_gradients"),
    ("finite gradient", Move, "check_gradients"),
)
COMMAND = "python -m benchmarks.step_cost --real"
PROTECTIONS = tuple(dict.fromkeys(name for name, *_ in PIECES))


def protections(device: torch.device, *, quick: bool, folder: Path | None = None) -> Table:
    """A table of what each protection adds, on one device."""
    decision = one_decision(20 if quick else 500)
    table = Table(
        title=describe(device),
        caption="ms a trial, with its share of what a step does once; the aim is at most 5 % of a step together. "
        f"Where two processes train together (gloo), one decision costs {1e3 * decision:.3f} ms a trial more.",
    )
    for column in ("network", "step", "trials", *PROTECTIONS, "together", "of a step"):
        table.add_column(column, justify="left" if column == "network" else "right")
    rows: list[dict[str, Any]] = []
    rounds = 3 if quick else (10 if device.type == "cpu" else 100)
    for name, network, batch in (
        ("convolutions, 20 M, batch 32", Convolutions, lambda: pictures(32)),
        ("transformer, 23 M, batch 64", lambda: Tagger(dropout=0.1), lambda: tokens(64)),
        ("784-4096-4096-10, 20 M, batch 64", wide_network, lambda: images(64)),
    ):
        measured = measure(network(), batch(), device, rounds)
        rows.append({"network": name, **asdict(measured)})
        table.add_row(name, *_row(measured))
    if folder is not None:
        keep(folder, "protections", device, rows, one_decision=decision, command=COMMAND)
    return table


@dataclass(frozen=True)
class Measured:
    """Seconds a step, of steps that were not timed inside and of the protections in others; trials a step."""

    step: float
    trials: float
    spent: dict[str, float]


def measure(model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device, rounds: int) -> Measured:
    torch.manual_seed(0)
    model = model.to(device)
    optimizer = hotswap.HotSwapSGD(model.parameters(), lr=hotswap.log_grid(1, 1e-3, 7))
    x, y = (part.to(device) for part in batch)
    clock, trials = Clock(), 0

    def step() -> int:
        optimizer.step(lambda: cross_entropy(model(x), y))
        return len(optimizer.last_step.trials)

    for _ in range(8):
        step()
    whole = side_by_side({"step": step}, device, rounds)["step"]
    kept = [(owner, attribute, getattr(owner, attribute)) for _, owner, attribute in PIECES]
    try:
        for (name, *_), (owner, attribute, function) in zip(PIECES, kept, strict=True):
            setattr(owner, attribute, clock.around(name, function))
        trials = sum(step() for _ in range(rounds))
    finally:
        for owner, attribute, function in kept:
            setattr(owner, attribute, function)
    return Measured(whole, trials / rounds, {name: clock.spent[name] / rounds for name in PROTECTIONS})


def _row(measured: Measured) -> list[str]:
    together = sum(measured.spent.values())
    each = [1e3 * seconds / measured.trials for seconds in (*measured.spent.values(), together)]
    share = f"{together / measured.step:.1%}"
    return [f"{1e3 * measured.step:.1f}", f"{measured.trials:.1f}", *(f"{ms:.3f}" for ms in each), share]


def one_decision(rounds: int) -> float:
    """Seconds to average a trial's loss over two processes on one machine."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_decide, args=(Path(folder), rounds), nprocs=2)
        return float((Path(folder) / "seconds").read_text())


def _decide(rank: int, folder: Path, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(folder / "meet").as_uri(), rank=rank, world_size=2)
    agreement, loss = Agreement(None, lambda: torch.device("cpu")), torch.tensor(1.0)
    for _ in range(10):
        agreement.mean(loss)
    began = time.perf_counter()
    for _ in range(rounds):
        agreement.mean(loss)
    if rank == 0:
        (folder / "seconds").write_text(str((time.perf_counter() - began) / rounds))
    dist.destroy_process_group()
