"""How long a step with Muon takes over one with fused AdamW, passes included, and how many kernels it launches.

    python -m benchmarks.muon_step --device cuda --keep results/benchmarks   # all networks, in bfloat16; minutes
    python -m benchmarks.muon_step --device cpu                              # a small network, and calls instead

`step` is the time of a forward and a backward pass and Muon's step over that of the same pass and AdamW's step, with
its CUDA graph and without. Milliseconds are of the pass and of the optimizers' steps. Kernels are those of one step of
the optimizer; on a CPU the calls into torch are counted, of which a GPU would launch one kernel each, or a few.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import hotswap
from benchmarks.measuring import asked_for, describe, keep, seconds
from benchmarks.networks import GPT, VisionTransformer, pictures, resnet9, text

READ = ("_local_scalar_dense", "lift_fresh")
"""Calls that read or make numbers of the host."""

WARM_UP = 10
"""Steps before anything is timed; Muon has captured its graph by then."""


@dataclass(frozen=True)
class Case:
    """A network and its minibatches; `reach`: what the step over AdamW's is to be on an H200."""

    name: str
    network: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    reach: float | None = None


def cases(device: torch.device) -> list[Case]:
    """The networks; on a CPU a small one, which shows the calls."""
    if device.type == "cpu":
        return [Case("GPT, 0.2 M", lambda: GPT(96, 64, 4, 4, 32), lambda: text(96, 2, 32))]
    return [
        Case("GPT, 10.7 M, 16k tokens", lambda: GPT(96, 384, 6, 6, 256), lambda: text(96, 64, 256), 1.15),
        Case("ViT, 2.7 M, 256 pictures", VisionTransformer, lambda: pictures(256), 1.15),
        Case("ResNet-9, 512 pictures", resnet9, lambda: pictures(512), 1.10),
        Case("GPT, 124 M, 32k tokens", lambda: GPT(50304, 768, 12, 12, 1024), lambda: text(50304, 32, 1024), 1.05),
    ]


class Loop:
    """A network in a training loop, with gradients."""

    def __init__(self, case: Case, device: torch.device, make: Callable[[nn.Module], Optimizer]) -> None:
        torch.manual_seed(0)
        self.device, self.model = device, case.network().to(device)
        self.x, self.y = (part.to(device) for part in case.batch())
        self.optimizer = make(self.model)
        self.passed()

    def passed(self) -> None:
        """A forward and a backward pass; the gradients of the pass before are dropped."""
        self.optimizer.zero_grad()
        gpu = self.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16) if gpu else nullcontext():
            loss = cross_entropy(self.model(self.x).float(), self.y)
        loss.backward()

    def stepped(self) -> None:
        """A whole step."""
        self.passed()
        self.optimizer.step()


class Calls(TorchDispatchMode):
    """Counts calls into torch that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.namespace == "aten" and not func.is_view and func.overloadpacket.__name__ not in READ
        return func(*args, **(kwargs or {}))


def launches(optimizer: Optimizer, device: torch.device) -> int:
    """Kernels that a step of the optimizer launches; calls into torch on a CPU."""
    if device.type == "cpu":
        with Calls() as counted:
            optimizer.step()
        return counted.count
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        optimizer.step()
        torch.cuda.synchronize()
    names = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")
    return sum(event.count for event in seen.key_averages() if event.key.startswith(names))


def adamw(model: nn.Module) -> Optimizer:
    return AdamW(model.parameters(), lr=1e-3, fused=True)


def measure(case: Case, device: torch.device, *, rounds: int, steps: int) -> dict[str, Any]:
    """One row: a network."""
    makers = {
        "adamw": adamw,
        "muon": lambda model: hotswap.Muon(model, lr=1e-3),
        "eager": lambda model: hotswap.Muon(model, lr=1e-3, graph=False),
    }
    loops = {name: Loop(case, device, make) for name, make in makers.items()}
    for _ in range(WARM_UP):
        for loop in loops.values():
            loop.stepped()
    plain = loops["adamw"]
    taken: dict[str, list[float]] = {name: [] for name in (*loops, "pass", *(f"{name} alone" for name in loops))}
    for _ in range(rounds):
        for name, loop in loops.items():
            taken[name].append(seconds(lambda loop=loop: [loop.stepped() for _ in range(steps)], device) / steps)
            only = seconds(lambda loop=loop: [loop.optimizer.step() for _ in range(steps)], device) / steps
            taken[f"{name} alone"].append(only)
        taken["pass"].append(seconds(lambda: [plain.passed() for _ in range(steps)], device) / steps)
    middle = {name: median(values) for name, values in taken.items()}
    return {
        "network": case.name,
        "weights": sum(p.numel() for p in loops["muon"].model.parameters()),
        "reach": case.reach,
        "step": middle["muon"] / middle["adamw"],
        "step_without_graph": middle["eager"] / middle["adamw"],
        "milliseconds": {name: 1e3 * middle[name] for name in ("pass", *(f"{one} alone" for one in loops))},
        "captured": any(one.graph is not None for one in loops["muon"].optimizer._orthogonalizers.values()),
        "launches": {name: launches(loop.optimizer, device) for name, loop in loops.items()},
    }


def told(row: dict[str, Any]) -> str:
    """The row in a line."""
    times = ", ".join(f"{name} {value:.2f}" for name, value in row["milliseconds"].items())
    counts = ", ".join(f"{name} {count}" for name, count in row["launches"].items())
    reach = "" if row["reach"] is None else f" (to reach {row['reach']:.2f})"
    graph = "with a graph" if row["captured"] else "no graph"
    ratios = f"step over AdamW's {row['step']:.2f}{reach}, {graph}; without {row['step_without_graph']:.2f}"
    return f"{row['network']}: {ratios}; ms: {times}; launches: {counts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; all there are by default")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each optimizer, 9 unless told")
    parser.add_argument("--steps", type=int, default=20, help="steps of a turn, 20 unless told")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    for name in ("rounds", "steps"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: give at least 1")
    for device in asked_for(parser, options.device):
        print(describe(device))
        rows = []
        for case in cases(device):
            rows.append(measure(case, device, rounds=options.rounds, steps=options.steps))
            print(told(rows[-1]), flush=True)
            if options.keep is not None:
                keep(options.keep, "muon-step", device, rows)


if __name__ == "__main__":
    main()
