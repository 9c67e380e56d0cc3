"""The walk of one step, or of one study, through the source: `python -m tools.walk [--study]`.

Traces one step of `HotSwapSGD` with two trials, on the paper's network and in the middle of a training; or
`hotswap study run` of a study of the paper's three algorithms with one run each, one epoch of one minibatch. Counts the
Python calls inside of the package `hotswap`, the files that they are in, and how often a call is in another file than
the call before it: what a reader has to follow. It says nothing about time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
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
    """The walk of one call of `work`. Comprehensions are functions in Python 3.11, and count there."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name, path = frame.f_code.co_name, Path(frame.f_code.co_filename)
        if event == "call" and name != "<module>" and path.is_relative_to(PACKAGE):
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


STUDY = """
name = "walk"
dataset = "digits"
train_images = 64
batch_sizes = [64]
seeds = [0]
epochs = 1

[network]
hidden = [8]

[sgd]
lr = [0.1]
lr_decay = [1.0]
momentum = [0.9]

[adadelta]

[ducb]
"""


def walk_of_a_study() -> Walk:
    """A whole study, from its file to its folder."""
    import hotswap.studies  # noqa: F401, PLC0415  # what happens while it is imported is no part of the walk
    from hotswap.cli import app  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.toml"
        file.write_text(STUDY, encoding="utf-8")
        words = ["study", "run", str(file), "--out", str(Path(folder) / "out")]
        return traced(lambda: app(words, standalone_mode=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="list every call, too")
    parser.add_argument("--study", action="store_true", help="the walk of a study instead of that of a step")
    options = parser.parse_args()
    walk = walk_of_a_study() if options.study else walk_of_a_step()
    print(f"{len(walk.calls)} calls in {len(walk.files)} files, with {walk.changes} changes of file")
    for file, calls in walk.files.most_common():
        print(f"{calls:5} {file}")
    if options.calls:
        for file, name in walk.calls:
            print(f"{file}: {name}")


if __name__ == "__main__":
    main()
