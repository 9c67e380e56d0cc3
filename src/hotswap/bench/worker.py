"""A process that trains runs for another one: `python -m hotswap.bench.worker DEVICE THREADS [FILE.py ...]`.

Each line that it reads is a run, and each that it writes a measurement or, in the end, a result. It ends when there is
nobody any more to read from.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hotswap.bench.runs import Point, Run
from hotswap.bench.training import train
from hotswap.bench.workloads import WORKLOADS
from hotswap.data import load
from hotswap.data.registry import hand_over
from hotswap.extensions import load_file

__all__ = ["keep_data", "main"]


def main(device: str, threads: str, *load: str) -> None:
    """Train until the input ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what packages print must not get in between
    torch.set_num_threads(int(threads))
    for file in load:
        load_file(Path(file))

    def tell(what: dict[str, Any]) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    def measured(point: Point) -> None:
        tell({"point": list(point)})

    for line in sys.stdin:
        run = Run(**json.loads(line))
        keep_data(run)
        tell(train(run, device, measured).plain())
        if device.startswith("cuda"):
            torch.cuda.empty_cache()


def keep_data(run: Run) -> None:
    """Load the data set of a run once for all runs of this process; where that fails, the run itself will say why."""
    name = WORKLOADS[run.workload].data.get(run.size)
    if name is not None:
        with suppress(Exception):
            hand_over([replace(load(name), name=name)])  # which is what `load` returns from now on


if __name__ == "__main__":
    main(*sys.argv[1:])
