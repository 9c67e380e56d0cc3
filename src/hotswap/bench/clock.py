"""The clock of the benchmark: what a run has cost, in forward-and-backward passes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from hotswap.bench.workloads import Batch

__all__ = ["Clock"]


class Clock:
    """Counts every evaluation of a loss and every backward pass from one, whoever asks for them.

    A forward alone counts a third of a pass, and a backward two thirds.
    """

    def __init__(self) -> None:
        self._thirds = 0  # whole numbers, so that sums are exact

    @property
    def cost(self) -> float:
        """Passes so far."""
        return self._thirds / 3

    def counted(self, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
        """The same loss, counted."""

        def evaluated(batch: Batch) -> Tensor:
            value = loss(batch)
            self._thirds += 1
            if value.requires_grad:
                value.register_hook(self._backward)  # type: ignore[no-untyped-call]  # torch's
            return value

        return evaluated

    def _backward(self, _: Tensor) -> None:
        self._thirds += 2
