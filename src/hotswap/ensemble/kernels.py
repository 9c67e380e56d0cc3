"""Elementwise parts of an ensemble's step that are compiled on a GPU, each into a kernel or two.

A step of a few small networks is bound by the number of kernels, not by what they do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = ["fused", "load_compiler", "loss_and_slope", "mean_loss", "moved_loss", "of_any_size"]

P = ParamSpec("P")
T = TypeVar("T")


def fused(function: Callable[P, T], like: Tensor) -> Callable[P, T]:
    """The function, compiled where `like` is on a GPU and there is a compiler for it."""
    return _compiled(function) if _has_compiler(like.device) else function


def of_any_size(*tensors: Tensor) -> None:
    """Say that all sizes but the last will vary: a function is then compiled once for all, and not for each again.

    For small tensors only: a kernel that knows its sizes is a little better.
    """
    for tensor in tensors:
        if _has_compiler(tensor.device):
            torch._dynamo.maybe_mark_dynamic(tensor, list(range(max(1, tensor.dim() - 1))))


def load_compiler(device: torch.device) -> None:
    """Import what `fused` will need: seconds that belong to the start of a process, and not to its first unit."""
    if _has_compiler(device):
        import_module("torch._inductor.compile_fx")


@cache
def _has_compiler(device: torch.device) -> bool:
    return device.type == "cuda" and find_spec("triton") is not None


@cache
def _compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Once for all ensembles of a process; sizes that turn out to vary become variables of the kernel."""
    compiled = torch.compile(function)

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
