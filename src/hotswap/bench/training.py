"""Training one run: a function of the run and the device, and of nothing else."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from typing import Any, get_args

import torch

import hotswap
from hotswap.bench.methods import METHODS, Method, Training
from hotswap.bench.runs import PERCENTS, Point, Result, Run, State
from hotswap.bench.workloads import WORKLOADS, Size, Task, Workload
from hotswap.bench.workloads.text import fingerprint
from hotswap.ensemble.engine import full_float32
from hotswap.errors import DataError, HotSwapError, SettingError
from hotswap.optim.failures import is_of_the_machine
from hotswap.store import versions

__all__ = ["Stopped", "program", "train"]

PATIENCE = 2
"""Measurements in a row that are not finite, after which a run is given up. Methods may recover from one."""


class Stopped(Exception):  # noqa: N818  # nothing went wrong
    """Whoever watches a training has asked for its end."""


@cache
def program() -> str:
    """A fingerprint of this package's sources: a checkout that gives the same one has the code that trained a run."""
    root, digest = Path(hotswap.__file__).parent, sha256()
    for file in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def train(run: Run, device: str = "cpu", watch: Callable[[Point], None] = lambda _: None) -> Result:
    """Train a run until its budget is spent. Whatever happens, there is a result that says so.

    watch: is given each measurement when it is made. It may raise `Stopped`, which ends the training.
    """
    if run.size not in get_args(Size):
        raise SettingError(f"Run(size={run.size!r}): a workload is of size {' or '.join(get_args(Size))}.")
    workload, method = WORKLOADS.find(run.workload, "workload")(), METHODS.find(run.method, "method")()
    settings = dict(method.configuration(run.configuration).settings)
    origin: dict[str, Any] = {**versions(torch.device(device)), "threads": torch.get_num_threads()}
    origin["method_version"] = method.version
    origin["program"] = program()
    points: list[Point] = []
    budget = 0

    def ended(state: State, reason: str = "") -> Result:
        return Result(run, state, reason, tuple(points), budget, workload.version, settings, origin)

    if reason := method.missing():
        return ended("missing", reason)
    if method.package is not None:
        origin[method.package[0]] = version(method.package[0])
    # Random numbers of others stay as they are, and what a package warns of is its user's concern, not the reader's.
    # Products in float32 keep their full precision on a GPU, too: torch itself would round convolutions there.
    with torch.random.fork_rng(_gpus(device)), warnings.catch_warnings(), full_float32():
        warnings.simplefilter("ignore")
        try:
            if workload.reads_sources:
                origin["text"] = fingerprint()
            begun = _begin(run, workload, method, settings, device)
            budget = begun.task.steps
            _train(begun, torch.device(device), points, watch)
        except Stopped:
            raise
        except DataError as error:
            return ended("missing", _one_line(error))
        except Exception as error:  # of any package; the row says which
            state: State = "killed" if is_of_the_machine(error) else "failed"
            return ended(state, f"{type(error).__name__}: {_one_line(error)}{_place(error)}")
        finally:
            begun = None  # type: ignore[assignment]  # its memory goes to the next run
            gc.collect()
    lost = list(takewhile(lambda point: not point.finite, reversed(points)))
    if lost:
        return ended("diverged", f"Its measures are not finite from {lost[-1].percent} % of the budget on.")
    return ended("finished")


def _begin(run: Run, workload: Workload, method: Method, settings: dict[str, Any], device: str) -> Training:
    task: Task = workload.task(run.seed, run.size, device)
    torch.manual_seed(run.seed)  # dropout's
    begun = method.begin(task, settings, run.seed)
    if not isinstance(begun, Training):
        raise SettingError(f"{type(method).__name__}.begin returned {begun!r}, and must return a Training.")
    return begun


def _train(training: Training, device: torch.device, points: list[Point], watch: Callable[[Point], None]) -> None:
    """Train, and measure at every moment that there is a row for."""
    batches = training.task.minibatches()
    steps, seconds = 0, 0.0
    for percent in PERCENTS:
        due = percent * training.task.steps / 100
        began = time.perf_counter()
        while training.cost < due:
            before = training.cost
            training.step(next(batches))
            if training.cost == before:
                raise SettingError(
                    "A step counted no pass, so that the run would never end: a method that evaluates the loss itself "
                    "must do so through `self.loss`."
                )
            steps += 1
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds += time.perf_counter() - began
        points.append(Point(percent, float(training.cost), steps, seconds, *training.measure()))
        if points[-1].validation < 0:
            raise SettingError(
                f"The validation measure is {points[-1].validation:g}, and scores are ratios of measures: give the "
                "workload one that is never negative, such as the exponential of its loss."
            )
        watch(points[-1])
        if len(points) >= PATIENCE and not any(point.finite for point in points[-PATIENCE:]):
            return


def _gpus(device: str) -> list[torch.device]:
    return [torch.device(device)] if device.startswith("cuda") else []


def _place(error: Exception) -> str:
    """The file and line that raised an error; empty for this library's errors, which say what to do instead."""
    frames = extract_tb(error.__traceback__)
    return (
        ""
        if isinstance(error, HotSwapError) or not frames
        else f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or "no message"
