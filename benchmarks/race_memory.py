"""What a race holds beside the model and one optimizer: on the device, and in the host's memory.

    python -m benchmarks.race_memory                                      # the devices that there are
    python -m benchmarks.race_memory --device cuda --keep results/benchmarks

The networks are a GPT of 10.7 M weights, the same one frozen with low-rank adapters (LoRA), and on a GPU a GPT of 124 M
weights. They race as long as three default lanes have had a turn. `device` is what the GPU holds between steps beyond
the model and one optimizer that trains alone; 0 on a CPU, where it is the host's. `lanes` are the parked tensors of all
lanes, `blocks` the pinned memory that they lie in, or would lie in on a GPU, and `single` what it would be with a block
for each tensor.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import hotswap
from benchmarks.measuring import asked_for, describe, keep
from benchmarks.networks import GPT, adapted, text
from benchmarks.race_cost import Case, Loop
from hotswap.race import memory
from hotswap.race.snapshots import copied

STEPS = 4000
"""Steps of the run; each of the three lanes has its first turn in the first sixty, and has others later."""


def cases(device: torch.device) -> list[Case]:
    """The networks; a GPU has room and time for the large one."""
    gpu = device.type == "cuda"
    count, length = (32, 256) if gpu else (1, 32)

    def small() -> GPT:
        return GPT(96, 384, 6, 6, 256)

    found = [
        Case("LoRA on GPT, 10.7 M", lambda: adapted(small()), lambda: text(96, count, length), bfloat16=gpu),
        Case("GPT, 10.7 M", small, lambda: text(96, count, length), bfloat16=gpu),
    ]
    large = Case("GPT, 124 M", lambda: GPT(50304, 768, 12, 12, 1024), lambda: text(50304, 4, 1024), bfloat16=True)
    return [*found, large] if gpu else found


def measure(case: Case, device: torch.device, steps: int = STEPS) -> dict[str, Any]:
    """One row: a network. Numbers are bytes."""

    def held() -> int:
        gc.collect()
        return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    loop = Loop(case, device)
    loop.gradients()  # so that cuBLAS has its workspace
    loop.model.zero_grad()
    begin = held()
    alone = hotswap.lanes(loop.model)[0]
    loop.bare(alone, 5)
    one = held() - begin
    del alone
    begin = held()
    race = hotswap.Race(loop.model, total_steps=steps)
    lanes = race._contest.racing
    while not all(lane.parked and lane.parked["model"] for lane in lanes):
        loop.raced(race)
        lanes = [lane for lane in lanes if lane.dropped_at is None]
    tensors = [tensor for lane in lanes for tensor in parked(lane)]
    trained = sum(p.numel() * p.element_size() for p in loop.model.parameters() if p.requires_grad)
    return {
        "network": case.name,
        "lanes": [lane.name for lane in lanes],
        "weights": sum(p.numel() * p.element_size() for p in loop.model.parameters()),
        "trained": trained,
        "device": max(0, held() - begin - one),
        "parked": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "blocks": sum(blocks(parked(lane)) for lane in lanes),
        "single": sum(blocks([tensor]) for tensor in tensors),
    }


def parked(lane: hotswap.Lane) -> Iterator[Tensor]:
    """The tensors of a parked lane that have dimensions or not, but some number in them."""
    found: list[Tensor] = []
    copied(lane.parked, lambda tensor, _: found.append(tensor))
    return (tensor for tensor in found if tensor.numel())


def blocks(tensors: Any) -> int:
    """The bytes of the blocks that are taken for tensors."""
    tensors = list(tensors)
    expected = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    taken = memory.Blocks(lambda length: torch.empty(length, dtype=torch.uint8, device="meta"), expected)
    for tensor in tensors:
        taken.take(tensor)
    return sum(len(block) for block, _ in taken.blocks)


def told(row: dict[str, Any]) -> str:
    """The row in a line, in MiB."""
    numbers = [f"{name} {row[name] / 2**20:,.1f}" for name in ("weights", "trained", "device", "parked", "blocks")]
    return (
        f"{row['network']}, {len(row['lanes'])} lanes, MiB: {', '.join(numbers)}, single {row['single'] / 2**20:,.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; all there are by default")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    for device in asked_for(parser, options.device):
        print(describe(device))
        rows: list[dict[str, Any]] = []
        for case in cases(device):
            rows.append(measure(case, device))
            print(told(rows[-1]), flush=True)
            if options.keep is not None:
                keep(options.keep, "race-memory", device, rows)


if __name__ == "__main__":
    main()
