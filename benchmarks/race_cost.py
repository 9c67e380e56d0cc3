"""What a race costs beside the steps of its lanes, and after it: time and memory.

    python -m benchmarks.race_cost                        # a perceptron, a convolution with batch norm, a transformer
    python -m benchmarks.race_cost --quick --device cuda  # a look, in a minute

`racing` is a step of six lanes over six steps of the base alone; `after` is a step when the race is over, over one of
the base alone. All of them take turns. Memory is beyond the base's own, in copies of the parameters: AdamW keeps two of
them, so a lane that waits takes three. Each network is printed, and kept, as soon as it is measured.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import PeakMemory, asked_for, describe, keep, side_by_side
from benchmarks.networks import Convolutions, Tagger, images, paper_network, pictures, tokens

LANES = 6
STEPS = 1_000_000
"""Of the runs; nobody waits for their end."""


@dataclass(frozen=True)
class Case:
    """A network, and minibatches for it."""

    name: str
    network: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]


CASES = (
    Case("paper's network, batch 512", paper_network, lambda: images(512)),
    Case("convolutions with batch norm, 20 M, batch 8", Convolutions, lambda: pictures(8)),
    Case("transformer with dropout, 23 M, batch 32", lambda: Tagger(0.1), lambda: tokens(32)),
)


@dataclass(frozen=True)
class Times:
    """In seconds."""

    plain: float
    raced: float
    after: float

    @property
    def racing_ratio(self) -> float:
        return self.raced / (LANES * self.plain)

    @property
    def after_ratio(self) -> float:
        return self.after / self.plain


def race(network: nn.Module, *, over: bool) -> hotswap.Race:
    """With rates of which none can spoil a run; one that is over after two steps, or one that goes on."""
    base = torch.optim.AdamW(network.parameters(), lr=1e-4)
    rates = {"lr": hotswap.log_grid(1e-4, 1e-5, LANES)}
    rounds = ((2 / STEPS, 1),) if over else ((0.5, 1),)
    return hotswap.Race(base, rates, STEPS, rounds=rounds, least=1, warmup=None, decay=None, module=network)


def measure(case: Case, device: torch.device, rounds: int, warm_up: int) -> Times:
    torch.manual_seed(0)
    plain = case.network().to(device)
    racing, over = copy.deepcopy(plain), copy.deepcopy(plain)
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-4)
    races = {"raced": (race(racing, over=False), racing), "after": (race(over, over=True), over)}
    data = [tuple(part.to(device) for part in case.batch()) for _ in range(16)]
    turn = dict.fromkeys(("plain", *races), 0)

    def batch(of: str) -> tuple[Tensor, ...]:
        turn[of] += 1
        return data[turn[of] % len(data)]

    def plain_step() -> None:
        x, y = batch("plain")
        adamw.zero_grad()
        cross_entropy(plain(x), y).backward()
        adamw.step()

    def step_of(name: str) -> None:
        (x, y), (optimizer, network) = batch(name), races[name]
        optimizer.step(lambda: cross_entropy(network(x), y))

    works: dict[str, Callable[[], object]] = {"plain": plain_step}
    works |= {name: lambda name=name: step_of(name) for name in races}
    for _ in range(warm_up):
        for work in works.values():
            work()
    return Times(**side_by_side(works, device, rounds))


def memory(case: Case, device: torch.device, *, over: bool) -> float:
    """What a race keeps between steps beyond its base, in copies of the parameters."""
    kept = []
    for raced in (False, True):
        torch.manual_seed(0)
        network = case.network().to(device)
        x, y = (part.to(device) for part in case.batch())
        with PeakMemory() as watched:
            optimizer = race(network, over=over) if raced else torch.optim.AdamW(network.parameters(), lr=1e-4)
            for _ in range(4):
                if raced:
                    optimizer.step(lambda: cross_entropy(network(x), y))  # noqa: B023
                else:
                    optimizer.zero_grad()
                    cross_entropy(network(x), y).backward()
                    optimizer.step()
            kept.append(watched.now())
    size = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    return (kept[1] - kept[0]) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a look, not a measurement")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; all there are by default")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    console = Console()
    for device in asked_for(parser, options.device):
        console.print(describe(device), soft_wrap=True)
        rows: list[dict[str, Any]] = []
        for case in CASES:
            small = "paper" in case.name or device.type == "cuda"
            with console.status(f"{device}: {case.name}"):
                rounds = (10 if small else 3) if options.quick else (200 if small else 20)
                times = measure(case, device, rounds, warm_up=10 if small else 2)
                told = f"AdamW step {1e3 * times.plain:.3f} ms, racing {times.racing_ratio:.3f}, "
                console.print(f"{case.name}: {told}after {times.after_ratio:.3f}", soft_wrap=True)
                copies = [memory(case, device, over=over) for over in (False, True)]
            console.print(f"  memory racing {copies[0]:.2f}, after {copies[1]:.2f} copies of the parameters")
            memories = dict(zip(("memory_racing", "memory_after"), copies, strict=True))
            ratios = {"racing": times.racing_ratio, "over": times.after_ratio}
            rows.append({"network": case.name, **asdict(times), **memories, **ratios})
            if options.keep is not None:
                keep(options.keep, "race-cost", device, rows)


if __name__ == "__main__":
    main()
