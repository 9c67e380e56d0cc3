"""Timing and peak memory, the same way for everything that is compared."""

from __future__ import annotations

import argparse
import json
import platform
import random
import shlex
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def devices() -> list[torch.device]:
    found = [torch.device("cpu")]
    return [*found, torch.device("cuda")] if torch.cuda.is_available() else found


def asked_for(parser: argparse.ArgumentParser, name: str | None) -> list[torch.device]:
    """The devices here, or the one of this name; the command ends with a sentence where there is none."""
    found = [device for device in devices() if name in (None, device.type)]
    if not found:
        parser.error(f"--device {name}: there is none here")
    return found


def origin(device: torch.device) -> dict[str, str]:
    """What ran here, to stand beside the numbers."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    spec = sys.modules["__main__"].__spec__
    elsewhere = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for where in ("--keep", "--out", "--pack", "--unpack"):  # where numbers are kept says nothing of them
        elsewhere.add_argument(where)
    arguments = elsewhere.parse_known_args(sys.argv[1:])[1]
    return {
        "device": name,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "date": str(date.today()),
        "command": shlex.join(["python", "-m", spec.name if spec else "benchmarks", *arguments]),
    }


def describe(device: torch.device) -> str:
    """The same in one line."""
    of = origin(device)
    return f"{of['device']}; torch {of['torch']}, Python {of['python']}; {of['date']}; {of['command']}"


def keep(folder: Path, name: str, device: torch.device, rows: list[dict[str, Any]], **more: Any) -> None:
    """Write what was measured to a file, from which `docs/numbers.py` fills the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    table = origin(device) | more | {"rows": rows}
    (folder / f"{name}-{device.type}.json").write_text(json.dumps(table, indent=1) + "\n")


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock time of one call, from before it is issued until the device is done."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def side_by_side(works: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> dict[str, float]:
    """The mean time of each over `rounds`, taking turns call by call, in another order each time.

    Turns, so that a slow spell of the machine hits all alike, and so that nobody is measured with caches that only a
    tight loop around one function would have. Another order, so that nobody always comes after the same one.
    """
    taken = dict.fromkeys(works, 0.0)
    order, shuffled = list(works), random.Random(0)
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            taken[name] += seconds(works[name], device)
    return {name: total / rounds for name, total in taken.items()}


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of every tensor storage that comes to life inside, and remembers the most at any time."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
        known = {leaf.untyped_storage()._cdata for leaf in given}
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and (storage := leaf.untyped_storage())._cdata not in known:
                self._alive.setdefault(StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, self.now())
        return result

    def now(self) -> int:
        """Bytes alive at this moment."""
        self._alive = {ref: size for ref, size in self._alive.items() if not ref.expired()}
        return sum(self._alive.values())
