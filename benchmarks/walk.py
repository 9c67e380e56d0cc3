"""The walk of one step through the source: `python -m benchmarks.walk`.

Traces one step of `HotSwapSGD` with two trials, on the paper's network and in the middle of a training. Counts the
Python calls inside of the package `hotswap`, the files that they are in, and how often a call is in another file than
the call before it: what a reader has to follow. It says nothing about time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType

import torch
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.networks import images, paper_network

PACKAGE = Path(hotswap.__file__).parent
SKIPPED = ("<lambda>", "<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")


@dataclass(frozen=True)
class Walk:
    """The calls of one step, in order: file and function of each."""

    calls: tuple[tuple[str, str], ...]

    @property
    def files(self) -> Counter[str]:
        """How many calls each file has."""
        return Counter(file for file, _ in self.calls)

    @property
    def changes(self) -> int:
        """How often a call is in another file than the one before it."""
        return sum(one[0] != other[0] for one, other in zip(self.calls, self.calls[1:], strict=False))


def traced(work: Callable[[], object]) -> Walk:
    """The walk of one call; expressions that Python runs as functions (comprehensions, generators) are not counted."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name, path = frame.f_code.co_name, Path(frame.f_code.co_filename)
        if event == "call" and name not in SKIPPED and path.is_relative_to(PACKAGE):
            calls.append((str(path.relative_to(PACKAGE)), name))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Walk(tuple(calls))


def walk_of_a_step(warm_up: int = 40, trials: int = 2) -> Walk:
    """The first step with so many trials, once the sweep over the arms is over; its closure is not checked."""
    torch.manual_seed(0)
    model = paper_network()
    optimizer = hotswap.HotSwapSGD(model.parameters())
    for step in count():
        x, y = images(8)
        walk = traced(lambda x=x, y=y: optimizer.step(lambda: cross_entropy(model(x), y)))
        if step >= warm_up and len(optimizer.last_step.trials) == trials:
            return walk
    raise AssertionError  # not reached: the loop has no end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="list every call, too")
    options = parser.parse_args()
    walk = walk_of_a_step()
    print(f"{len(walk.calls)} calls in {len(walk.files)} files, with {walk.changes} changes of file")
    for file, calls in walk.files.most_common():
        print(f"{calls:5} {file}")
    if options.calls:
        for file, name in walk.calls:
            print(f"{file}: {name}")


if __name__ == "__main__":
    main()
