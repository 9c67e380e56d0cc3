"""What an exception of the closure means at a trial.

At a huge rate a network gives NaN, and torch's own checks raise: `F.binary_cross_entropy` of what is no probability,
`torch.distributions.Normal` of a scale that is infinite. Where the start point was fine, that says of the rate what an
infinite loss would say. Other exceptions say something about the machine, the processes or the closure itself, and a
step that has met one must end.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from hotswap.errors import HotSwapError

__all__ = ["is_of_the_rate"]

_FATAL: tuple[type[BaseException], ...] = (
    HotSwapError,  # the closure does not do what a step needs
    MemoryError,
    torch.OutOfMemoryError,
    torch.AcceleratorError,  # after which the device computes nothing any more
    OSError,  # files, connections and what waits for them
    StopIteration,  # the data have run out
    *((dist.DistError,) if dist.is_available() else ()),
)

_FATAL_WORDS = ("out of memory", "can't allocate memory", "cuda error", "alloc_failed", "gloo", "nccl", "processgroup")
"""Of errors that torch raises as plain `RuntimeError`s."""


def is_of_the_rate(error: Exception) -> bool:
    """Whether an exception at a trial may be the rate's doing, and not the machine's or the closure's own."""
    if isinstance(error, _FATAL):
        return False
    text = str(error).lower()
    return not (isinstance(error, RuntimeError) and any(word in text for word in _FATAL_WORDS))
