"""What a race costs beside its lanes' optimizers, while it is on and after it: time, and memory of a GPU.

    python -m benchmarks.race_cost                        # the devices that there are; minutes on a CPU
    python -m benchmarks.race_cost --device cuda --keep results/benchmarks
    python -m benchmarks.race_cost --quick                # a look, not a measurement

`racing` is the time of all steps until a race is won, swaps and comparisons among them, over the time of the lanes'
optimizers that take as many steps each without a race. Only this part of a run of 500, 1,000 or 5,000 steps is trained.
`after` is a step after the race over a step of the winner's optimizer alone, in blocks of 100 steps: each has its share
of averages and snapshots. A step is a forward and a backward pass and the optimizer's step.

Both sides take turns, and a ratio is the median of the ratios of such pairs, with the least and the greatest. A race
finds no pinned memory that an earlier one has left. Memory is what the device holds between steps beyond the model and
the bare optimizer, in copies of the weights.
"""

from __future__ import annotations

import argparse
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer

import hotswap
from benchmarks import muon_step
from benchmarks.measuring import asked_for, describe, keep, seconds
from benchmarks.networks import images, paper_network
from hotswap.bench.workloads.base import seeded
from hotswap.bench.workloads.text import CHARACTERS, Transformer
from hotswap.ensemble.engine import full_float32

LENGTHS = (5000, 1000, 500)
"""Steps of the runs whose races are timed."""

BLOCK = 100
"""Steps after the race that are timed together: a race of 5,000 steps takes one snapshot in so many."""

BATCHES = 16


@dataclass(frozen=True)
class Case:
    """A network with minibatches, in some precision."""

    name: str
    network: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    bfloat16: bool = False
    lengths: tuple[int, ...] = LENGTHS

    def precision(self, device: torch.device) -> AbstractContextManager[Any]:
        return torch.autocast(device.type, torch.bfloat16) if self.bfloat16 else nullcontext()


def transformer() -> nn.Module:
    """10.7 M weights."""
    return seeded(lambda: Transformer(384, 6, 6, 128, dropout=0.0), 0)


def characters(count: int, length: int) -> tuple[Tensor, Tensor]:
    text = torch.randint(0, CHARACTERS, (count, length + 1))
    return text[:, :-1], text[:, 1:]


def cases(device: torch.device) -> list[Case]:
    """Fewer characters on a CPU, where the transformer would take minutes."""
    count, length = (32, 128) if device.type == "cuda" else (4, 64)
    found = [
        Case("paper's network, batch 64", paper_network, lambda: images(64)),
        Case(f"transformer, 10.7 M, {count} x {length} characters", transformer, lambda: characters(count, length)),
    ]
    if device.type == "cuda":
        for one in muon_step.cases(device):
            lengths = LENGTHS[:1] if "124 M" in one.name else LENGTHS  # a step takes a tenth of a second
            found.append(Case(f"{one.name}, bf16", one.network, one.batch, bfloat16=True, lengths=lengths))
    return found


class Loop:
    """A model in a training loop."""

    def __init__(self, case: Case, device: torch.device) -> None:
        torch.manual_seed(0)
        self.case, self.device, self.model = case, device, case.network().to(device)
        made = [case.batch() for _ in range(BATCHES)]
        self.batches: Iterator[list[Tensor]] = cycle([[part.to(device) for part in batch] for batch in made])

    def gradients(self) -> Tensor:
        """One pass; the gradients are there afterwards."""
        x, y = next(self.batches)
        with self.case.precision(self.device):
            loss = cross_entropy(self.model(x).float(), y)
        loss.backward()
        return loss

    def bare(self, optimizer: Optimizer, steps: int = 1) -> None:
        """Steps of an optimizer alone."""
        for _ in range(steps):
            self.gradients()
            optimizer.step()
            optimizer.zero_grad()

    def raced(self, race: hotswap.Race, steps: int = 1) -> None:
        """Steps of a race."""
        for _ in range(steps):
            loss = self.gradients()
            race.step(loss)
            race.zero_grad()


def chunk_of(device: torch.device) -> int:
    """Steps that one side takes before the other has its turn.

    A CPU has slow and fast moments, which must hit both sides; waiting for a GPU so often would hide what a race waits.
    """
    return 5 if device.type == "cpu" else 10**6


def forget_pinned_memory() -> None:
    """Give memory that a GPU copies to back to the system, so that every race has to ask for it."""
    gc.collect()
    if torch.cuda.is_available() and hasattr(torch._C, "_host_emptyCache"):
        torch._C._host_emptyCache()


Pair = tuple[float, float]
"""Seconds of a race, and of bare optimizers that take as many steps."""


def ratio_of(pairs: Sequence[Pair], steps: int) -> dict[str, Any]:
    """The median of the ratios, the least and the greatest; medians of seconds a step."""
    ratios = [one / other for one, other in pairs]
    return {
        "ratio": median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "pairs": len(pairs),
        "bare_step": median(other for _, other in pairs) / steps,
        "extra_a_step": median(one - other for one, other in pairs) / steps,
    }


LONG = 15.0
"""Seconds of a pair that is not repeated."""


def repeated(pair: Callable[[], Pair], budget: float, most: int) -> list[Pair]:
    """Pairs while there is time, and two at least where there may be so many and one is not long."""
    pairs = [pair()]
    spent = sum(pairs[0])
    while len(pairs) < most and (spent < budget or (len(pairs) == 1 and spent < LONG)):
        pairs.append(pair())
        spent += sum(pairs[-1])
    return pairs


def racing(case: Case, device: torch.device, total: int, budget: float, most: int) -> dict[str, Any]:
    """The steps of a race until it is won, over those of its lanes alone."""
    counts: list[dict[str, int]] = []

    def raced(loop: Loop, race: hotswap.Race, steps: int) -> list[str]:
        """So many steps or fewer; who took them."""
        took = []
        while race.winner is None and len(took) < steps:
            took.append(race._contest.here.name)
            loop.raced(race)
        return took

    def pair() -> Pair:
        loop, alone = Loop(case, device), [Loop(case, device) for _ in hotswap.lanes(case.network().to(device))]
        race = hotswap.Race(loop.model, total_steps=total)
        lanes = {
            one.name: (other, hotswap.lanes(other.model)[number])
            for number, (one, other) in enumerate(zip(race._contest.lanes, alone, strict=True))
        }
        forget_pinned_memory()
        took: list[str] = []
        sides = [0.0, 0.0]
        while race.winner is None:
            begin = len(took)
            sides[0] += seconds(lambda: took.extend(raced(loop, race, chunk_of(device))), device)
            same = [lanes[name] for name in took[begin:]]
            sides[1] += seconds(lambda same=same: [other.bare(optimizer) for other, optimizer in same], device)
        counts.append(Counter(took))
        return sides[0], sides[1]

    pairs = repeated(pair, budget, most)
    steps = sum(counts[0].values())
    return {"total_steps": total, "lanes": len(counts[0]), "steps": steps, **ratio_of(pairs, steps)}


def after(case: Case, device: torch.device, budget: float, most: int, *, adamw: bool = False) -> dict[str, Any]:
    """A step after a race over one of the winner's optimizer alone: of a default lane, or of AdamW on a GPU.

    Every pair trains models of its own, since where a model lies in memory makes a difference of some per cent.
    """

    def pair() -> Pair:
        loop, beside = Loop(case, device), Loop(case, device)
        made = [
            AdamW(one.model.parameters(), fused=True) if adamw else hotswap.lanes(one.model)[0]
            for one in (loop, beside)
        ]
        race = hotswap.Race(loop.model, [made[0]], total_steps=LENGTHS[0])  # of one lane: won at its first step
        loop.raced(race, BLOCK)
        beside.bare(made[1], BLOCK // 10)
        sides, steps = [0.0, 0.0], min(BLOCK, chunk_of(device))
        for _ in range(BLOCK // steps):
            sides[0] += seconds(lambda: loop.raced(race, steps), device)
            sides[1] += seconds(lambda: beside.bare(made[1], steps), device)
        return sides[0], sides[1]

    pairs = repeated(pair, budget, most)
    kind = AdamW if adamw else type(hotswap.lanes(Loop(case, device).model)[0])
    return {"optimizer": kind.__name__, **ratio_of(pairs, BLOCK)}


def memory(case: Case, device: torch.device, *, average: bool) -> dict[str, float]:
    """What a GPU holds between steps beyond the model and the bare optimizer, in copies of the weights."""

    def held() -> int:
        return torch.cuda.memory_allocated(device)

    loop = Loop(case, device)
    size = sum(p.numel() * p.element_size() for p in loop.model.parameters())
    loop.gradients()  # so that cuBLAS has its workspace
    loop.model.zero_grad()
    before = held()
    optimizer = hotswap.lanes(loop.model)[0]
    torch.cuda.reset_peak_memory_stats(device)
    loop.bare(optimizer, 3)
    bare, peak = held() - before, torch.cuda.max_memory_allocated(device) - before
    del optimizer
    gc.collect()
    begin = held()
    race = hotswap.Race(loop.model, total_steps=LENGTHS[1], average=average)
    torch.cuda.reset_peak_memory_stats(device)
    seen: list[int] = []
    while race.winner is None:
        loop.raced(race)
        seen.append(held())
    raced_peak = torch.cuda.max_memory_allocated(device)
    loop.raced(race, BLOCK)
    gc.collect()
    beyond = {
        "bare": bare,
        "before": begin - before,
        "during": max(seen) - begin - bare,
        "after": held() - begin - bare,
    }
    beyond["peak"] = raced_peak - begin - peak
    return {name: value / size for name, value in beyond.items()}


def measure(case: Case, device: torch.device, *, quick: bool) -> dict[str, Any]:
    """One row: a network."""
    most, budget = (1, 0.0) if quick else (12, 4.0)
    row: dict[str, Any] = {"network": case.name}
    row["racing"] = [
        racing(case, device, total, budget, most) for total in case.lengths if not quick or total < LENGTHS[0]
    ]
    row["after"] = [after(case, device, budget, 2 if quick else 30)]
    if device.type == "cuda" and not case.bfloat16:
        row["after"].append(after(case, device, budget, 2 if quick else 30, adamw=True))
    if device.type == "cuda" and case.lengths == LENGTHS:
        row["memory"] = {name: memory(case, device, average=name == "average") for name in ("average", "no_average")}
    return row


def told(row: dict[str, Any]) -> list[str]:
    """The row in a few lines."""

    def ratio(one: dict[str, Any]) -> str:
        spread = f"{one['low']:.3f} to {one['high']:.3f} in {one['pairs']} pairs"
        each = f"{1e6 * one['extra_a_step']:+.1f} us on {1e6 * one['bare_step']:.0f} us a step"
        return f"{one['ratio']:.3f} ({spread}), {each}"

    lines = [row["network"]]
    for one in row["racing"]:
        steps = f"{one['lanes']} lanes, {one['steps']} steps"
        lines.append(f"  racing, run of {one['total_steps']:,} steps: {ratio(one)}; {steps}")
    lines += [f"  after the race, {one['optimizer']}: {ratio(one)}" for one in row["after"]]
    for name, one in row.get("memory", {}).items():
        numbers = ", ".join(f"{key} {value:.3f}" for key, value in one.items())
        lines.append(f"  memory, {name.replace('_', ' ')}, in copies of the weights: {numbers}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a look, not a measurement")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; all there are by default")
    parser.add_argument("--network", metavar="TEXT", help="only networks with this in their name")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    for device in asked_for(parser, options.device):
        print(describe(device))
        rows: list[dict[str, Any]] = []
        for case in cases(device):
            if options.network and options.network not in case.name:
                continue
            with full_float32():
                rows.append(measure(case, device, quick=options.quick))
            print("\n".join(told(rows[-1])), flush=True)
            if options.keep is not None:
                keep(options.keep, "race-cost", device, rows)


if __name__ == "__main__":
    main()
