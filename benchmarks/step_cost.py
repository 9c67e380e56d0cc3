"""What one hot-swapped step costs, beside one step of torch's SGD on the same closure.

A step with T trials does one forward and backward and T further forwards, so its time over that of a step without a
search cannot be less than

    limit = (forward+backward + T · forward) / (forward+backward),

with both times and T measured in the same run. The overhead is the measured ratio over that limit.

Steps without trials are measured beside them: those of `NoSearch`, which take what the bandit proposes, and those
between two searches that are far apart. Their ratio to a step of torch's SGD is to be at most 1.05. And the mean over
all steps where every tenth searches.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import PeakMemory, asked_for, describe, keep, side_by_side
from benchmarks.networks import Tagger, images, paper_network, tokens, wide_network
from benchmarks.protections import protections


@dataclass(frozen=True)
class Case:
    """A network and a batch size."""

    name: str
    network: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    target: float | None
    """The overhead to reach, where there is one."""


CASES = (
    Case("paper's network, batch 64", paper_network, lambda: images(64), None),
    Case("paper's network, batch 512", paper_network, lambda: images(512), 1.15),
    Case("transformer, 23 M, batch 64", Tagger, lambda: tokens(64), 1.15),
    Case("784-4096-4096-10, 20 M, batch 64", wide_network, lambda: images(64), None),
)


@dataclass
class Measured:
    """One row of the table. Times in seconds, memory in copies of the parameters."""

    forward: float
    forward_backward: float
    sgd: float
    hot: float
    untried: float
    """A step of a search without trials."""
    between: float
    """A step between two searches."""
    tenth: float
    """The mean of steps of which every tenth searches."""
    trials: float
    extra_sgd: tuple[float, float]
    extra_adam: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.hot / self.sgd

    @property
    def limit(self) -> float:
        return (self.forward_backward + self.trials * self.forward) / self.forward_backward


def measure(case: Case, device: torch.device, rounds: int, warm_up: int) -> Measured:
    torch.manual_seed(0)
    plain, swapped = case.network().to(device), case.network().to(device)
    swapped.load_state_dict(plain.state_dict())
    sgd, hot = torch.optim.SGD(plain.parameters(), lr=0.01), hotswap.HotSwapSGD(swapped.parameters())
    rates = hotswap.log_grid(1e-2, 1e-4, 33)  # none of them can spoil a run
    settings: dict[str, dict[str, Any]] = {
        "untried": {"search": hotswap.NoSearch()},
        "between": {"search_every": 10**9},
        "tenth": {"search_every": 10},
    }
    nets = {name: copy.deepcopy(plain) for name in settings}
    others = {name: hotswap.HotSwapSGD(nets[name], rates, **settings[name]) for name in settings}
    data = [tuple(part.to(device) for part in case.batch()) for _ in range(64)]
    turn = {"sgd": 0, "hot": 0, **dict.fromkeys(others, 0)}
    trials: list[int] = []

    def batch(of: str = "sgd") -> tuple[Tensor, ...]:
        turn[of] += 1
        return data[turn[of] % len(data)]

    def forward() -> None:
        x, y = batch()
        with torch.no_grad():
            cross_entropy(plain(x), y)

    def forward_backward() -> None:
        x, y = batch()
        plain.zero_grad()
        cross_entropy(plain(x), y).backward()

    def sgd_step() -> None:
        forward_backward()
        sgd.step()

    def hot_step() -> None:
        x, y = batch("hot")
        hot.step(lambda: cross_entropy(swapped(x), y))
        trials.append(len(hot.last_step.trials))

    def step_of(name: str) -> None:
        x, y = batch(name)
        others[name].step(lambda: cross_entropy(nets[name](x), y))

    works = {"forward": forward, "forward_backward": forward_backward, "sgd": sgd_step, "hot": hot_step}
    works |= {name: partial(step_of, name) for name in others}
    for _ in range(warm_up):
        for name in ("sgd", "hot", *others):
            works[name]()
    trials.clear()
    times = side_by_side(works, device, rounds)
    return Measured(
        **times, trials=sum(trials) / len(trials), extra_sgd=extra_memory(case, device, adam=False),
        extra_adam=extra_memory(case, device, adam=True),
    )  # fmt: skip


def extra_memory(case: Case, device: torch.device, *, adam: bool) -> tuple[float, float]:
    """Memory of hot swapping beyond its base optimizer alone: kept between steps and at the peak, in copies of θ.

    The peaks differ by what is kept and a little more where activations are about as large as the parameters: a trial
    runs when all gradients are there, while in a plain step the activations go as the gradients come.
    """
    peaks, kept = [], []
    for swap in (False, True):
        torch.manual_seed(0)
        network = case.network().to(device)
        base = (torch.optim.Adam if adam else torch.optim.SGD)(network.parameters(), lr=0.01)
        x, y = (part.to(device) for part in case.batch())
        few = {"lr": hotswap.log_grid(1e-1, 1e-4, 4)}
        with PeakMemory() as memory:
            optimizer = hotswap.HotSwap(base, few) if swap else base
            for _ in range(3):
                if swap:
                    optimizer.step(lambda: cross_entropy(network(x), y))  # noqa: B023
                else:
                    optimizer.zero_grad()
                    cross_entropy(network(x), y).backward()
                    optimizer.step()
            kept.append(memory.now())
        peaks.append(memory.peak)
    size = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    return (kept[1] - kept[0]) / size, (peaks[1] - peaks[0]) / size


def overheads(device: torch.device, console: Console, *, quick: bool, folder: Path | None) -> Table:
    """One row per network."""
    table = Table(
        title=describe(device),
        caption="ms; untried, between, every 10th: over an SGD step; memory beyond the base's, kept / at the peak, in "
        "copies of the parameters",
    )
    headings = ("forward", "fwd+bwd", "SGD step", "hot step", "trials", "ratio", "limit", "overhead", "to reach")
    headings += ("untried", "between", "every 10th")
    for column in ("network", *headings, "memory SGD", "memory Adam"):
        table.add_column(column, justify="left" if column == "network" else "right")
    rows = []
    for case in CASES:
        small = "paper" in case.name or device.type == "cuda"
        rounds = 10 if quick else (300 if small else 25)
        with console.status(f"{device}: {case.name}"):
            row = measure(case, device, rounds, warm_up=60 if small else 40)
        rows.append(
            {"network": case.name, "to_reach": case.target, **asdict(row), "ratio": row.ratio, "limit": row.limit}
        )
        table.add_row(
            case.name,
            *(f"{1e3 * t:.3f}" for t in (row.forward, row.forward_backward, row.sgd, row.hot)),
            *(f"{x:.2f}" for x in (row.trials, row.ratio, row.limit)),
            f"{row.ratio / row.limit:.3f}",
            f"{case.target:.2f}" if case.target else "",
            *(f"{time / row.sgd:.3f}" for time in (row.untried, row.between, row.tenth)),
            *(f"{kept:.2f} / {peak:.2f}" for kept, peak in (row.extra_sgd, row.extra_adam)),
        )
    if folder is not None:
        keep(folder, "step-cost", device, rows)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a look, not a measurement")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; all there are by default")
    parser.add_argument("--real", action="store_true", help="what it costs to be right under dropout, batch norm, ...")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    console = Console(width=200)
    for device in asked_for(parser, options.device):
        if options.real:
            with console.status(f"{device}: protections"):
                table = protections(device, quick=options.quick, folder=options.keep)
        else:
            table = overheads(device, console, quick=options.quick, folder=options.keep)
        console.print(table)


if __name__ == "__main__":
    main()
