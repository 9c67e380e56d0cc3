"""What each method keeps between steps, in copies of the network's parameters: a network may be too large for it.

    python -m benchmarks.memory                        # all methods, on the paper's network; half a minute
    python -m benchmarks.memory --workload autoencoder

The parameters themselves are one of the copies, and their gradients another. What lives only within a step is not
counted, and neither are the data. Storages are counted and not what the system says that the process has, so that two
runs come to the same numbers.
"""

from __future__ import annotations

import argparse
import gc
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.measuring import PeakMemory, describe, keep
from benchmarks.pass_time import BESIDE, begun, methods, task_of
from hotswap.bench.workloads import WORKLOADS, Size

PASSES = 60
"""Enough for several steps of any method."""

CPU = torch.device("cpu")


def copies(workload: str, method: str, size: Size = "full") -> float:
    """What is alive after some steps, the parameters among it, over the parameters."""
    task = task_of(workload, size, CPU)
    parameters = sum(parameter.numel() * parameter.element_size() for parameter in task.model.parameters())
    batches = list(islice(task.minibatches(), PASSES))
    with PeakMemory() as watched:
        training = begun(task, workload, method)
        for batch in batches:
            if training.cost >= PASSES:
                break
            training.step(batch)
        gc.collect()
        return 1 + watched.now() / parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=list(WORKLOADS), default="paper_network", help="whose network")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    console = Console()
    console.print(describe(CPU), soft_wrap=True)
    found: dict[str, Any] = {}
    for name in (BESIDE, *methods()):
        with console.status(name):
            found[name] = copies(options.workload, name)
        console.print(f"{name}: {found[name]:.2f} copies of the parameters")
    if options.keep is not None:
        keep(options.keep, "memory", CPU, [{"workload": options.workload, "copies": found}])


if __name__ == "__main__":
    main()
