"""Elementwise parts of an ensemble's step that are compiled on a GPU, each into a kernel or two.

A step of a few small networks is bound by the number of kernels, not by what they do.

The same program must give the same numbers when it is run again, to the bit: a search compares losses, so that one
that is rounded differently takes another arm, and the run another way. A sum is rounded by the order in which it is
formed, which a compiled kernel decides by its configuration (how many numbers a block of it reads, by how many
threads). So configurations must depend on neither time nor what was compiled before:

- The compiler times several and takes the fastest, which is not the same one every time. Its option `deterministic`
  makes it choose by a rule, where the choice affects rounding.
- That rule looks at the sizes with which a function is first called. A kernel that serves all sizes is therefore
  compiled with examples, whose sizes are always the same, whichever unit of a study a process begins with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = [
    "fused",
    "load_compiler",
    "loss_and_slope",
    "losses_and_slopes",
    "losses_of_moves",
    "mean_loss",
    "moved_loss",
    "side_by_side",
]

MOST_PROGRAMS = 128  # programs into which one function may be compiled, at most

P = ParamSpec("P")
T = TypeVar("T")


def fused(function: Callable[P, T], like: Tensor) -> Callable[P, T]:
    """The function, compiled where `like` is on a GPU and there is a compiler for it."""
    return _compiled(function) if _has_compiler(like.device) else function


def side_by_side(calls: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """The results of calls that do not depend on each other: on a GPU, each on a stream of its own.

    Tiny kernels one after the other leave a GPU idle. What is called may read what was computed before, and later work
    may read the results, also where all of it is captured in a graph: the streams wait for the current one before, and
    it waits for them after. Memory that a result leaves is used again by its own stream only, after such a wait.
    """
    if device.type != "cuda":
        return [call() for call in calls]
    main, results = torch.cuda.current_stream(device), []
    streams = _streams(device, len(calls))
    for call, stream in zip(calls, streams, strict=True):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            results.append(call())
    for stream in streams:
        main.wait_stream(stream)
    return results


def losses_and_slopes(scores: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """`loss_and_slope` of scores `(R, B, outputs)`, compiled once for all R and B."""
    call = (scores, y)
    if _has_compiler(scores.device):
        runs, samples = _example(scores.shape[:2], (48, 64))
        example = (scores.new_zeros(runs, samples, scores.shape[2]), y.new_zeros(samples))
        _compile_for_any_size(loss_and_slope, example, call, classes)
    return fused(loss_and_slope, scores)(*call, classes)


def losses_of_moves(stay: Tensor, rate: Tensor, shift: Tensor, y: Tensor, classes: int) -> Tensor:
    """`moved_loss` of scores `(R, J, B, outputs)` and rates `(R, J, 1, 1)`, compiled once for all R, J and B.

    `stay` and `shift` may have one arm for all J.
    """
    call = (stay, rate, shift, y)
    if _has_compiler(stay.device):
        runs, own, samples = _example(stay.shape[:3], (3, 4, 64))
        arms = _example(rate.shape[1:2], (4,))[0]
        scores = stay.new_zeros(runs, own, samples, stay.shape[3])
        example = (scores, rate.new_zeros(runs, arms, 1, 1), torch.zeros_like(scores), y.new_zeros(samples))
        _compile_for_any_size(moved_loss, example, call, classes)
    return fused(moved_loss, stay)(*call, classes)


def _example(sizes: Sequence[int], instead: Sequence[int]) -> list[int]:
    """Sizes to compile with in place of those of a call; a size of 1 stays, since a kernel is made for it anyway."""
    return [size if size == 1 else other for size, other in zip(sizes, instead, strict=True)]


_compiled_with: set[object] = set()  # kinds of calls that were compiled


def _compile_for_any_size(
    function: Callable[..., object], example: Sequence[Tensor], call: Sequence[Tensor], classes: int
) -> None:
    """Say that all sizes but the last will vary, and compile with the example before the first call of its kind.

    For small tensors only: a kernel that knows its sizes is a little better.
    """
    kind = (function, classes, *((tensor.shape, tensor.dtype, tensor.device) for tensor in example))
    if kind not in _compiled_with:
        _compiled_with.add(kind)
        _of_any_size(example)
        fused(function, example[0])(*example, classes)
    _of_any_size(call)


def _of_any_size(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        torch._dynamo.maybe_mark_dynamic(tensor, list(range(max(1, tensor.dim() - 1))))


def load_compiler(device: torch.device) -> None:
    """Import what `fused` will need: seconds that belong to the start of a process, and not to its first unit."""
    if _has_compiler(device):
        import_module("torch._inductor.compile_fx")


_known_streams: dict[torch.device, list[torch.cuda.Stream]] = {}


def _streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """`count` streams of a device, the same ones every time."""
    known = _known_streams.setdefault(device, [])
    while len(known) < count:
        known.append(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    return known[:count]


@cache
def _has_compiler(device: torch.device) -> bool:
    return device.type == "cuda" and find_spec("triton") is not None


@cache
def _compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Once for all ensembles of a process; sizes that turn out to vary become variables of the kernel."""
    # Every bandit, search and base optimizer is another program, and the compiler gives up after eight by default.
    torch._dynamo.config.recompile_limit = max(MOST_PROGRAMS, torch._dynamo.config.recompile_limit)
    compiled = torch.compile(function, options={"deterministic": True})  # see the top of this file

    @wraps(function)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> T:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*Online softmax is disabled")  # the compiler's own business
            return compiled(*args, **kwargs)

    return quietly


def mean_loss(scores: Tensor, y: Tensor) -> Tensor:
    """Mean negative log likelihood over the samples: `(..., B, C)` and `(B,)` give `(...,)`."""
    likelihood = torch.log_softmax(scores, dim=-1)
    return -torch.where(_labelled(scores, y), likelihood, 0).sum(-1).mean(-1)


def moved_loss(stay: Tensor, rate: Tensor, shift: Tensor, y: Tensor, classes: int) -> Tensor:
    """`mean_loss` at the scores `stay − rate · shift`, of which the first columns are classes."""
    return mean_loss(torch.addcmul(stay, rate, shift, value=-1)[..., :classes], y)


def loss_and_slope(scores: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """`mean_loss` and its derivative with respect to the scores; zero in columns that are no classes."""
    real = scores[..., :classes]
    slope = (torch.softmax(real, dim=-1) - _labelled(real, y).to(scores.dtype)) / len(y)
    return mean_loss(real, y), torch.nn.functional.pad(slope, (0, scores.shape[-1] - classes))


def _labelled(scores: Tensor, y: Tensor) -> Tensor:
    """`(B, C)` true at each sample's label."""
    return y[:, None] == torch.arange(scores.shape[-1], device=scores.device)
