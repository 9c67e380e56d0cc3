"""The meaning of an exception of the closure at a trial.

At a huge rate a network gives NaN, and torch's own checks raise: `F.binary_cross_entropy` of what is no probability,
`torch.distributions.Normal` of a scale that is infinite. Where the start point was fine, that says of the rate what an
infinite loss would say. Other exceptions say something about the machine, the processes or the closure itself, and a
step that has met one must end.

A benchmark asks, too: a failure of the machine is no failure of the method that was trained on it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from hotswap.errors import HotSwapError

__all__ = ["is_of_the_machine", "is_of_the_rate"]

_MACHINE: tuple[type[BaseException], ...] = (
    MemoryError,
    torch.OutOfMemoryError,
    torch.AcceleratorError,  # after which the device computes nothing any more
    OSError,  # files, connections and what waits for them
    *((dist.DistError,) if dist.is_available() else ()),
)

_MACHINE_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cuda error",
    "alloc_failed",
    "gloo",
    "nccl",
    "processgroup",
)
"""Words in the messages of machine failures that torch raises as plain `RuntimeError`s."""


def is_of_the_rate(error: Exception) -> bool:
    """Whether an exception at a trial may be the rate's doing, and not the machine's or the closure's own.

    The closure's own errors are two: it does not do what a step needs, or its data have run out.
    """
    return not isinstance(error, HotSwapError | StopIteration) and not is_of_the_machine(error)


def is_of_the_machine(error: Exception) -> bool:
    """Whether an exception says that memory, a device, a file or a connection failed."""
    if isinstance(error, _MACHINE):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _MACHINE_WORDS)
