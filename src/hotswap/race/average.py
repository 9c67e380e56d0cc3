"""The average of a lane's weights: what a race hands over before its end.

Reference: Shamir and Zhang 2013, "Stochastic gradient descent for non-smooth optimization" (the polynomial weights).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hotswap.race.processes import local

__all__ = ["EVERY", "Average"]

EVERY = 5
"""Steps of a lane from one sample of its weights to the next."""

POWER = 8
"""Sample n has a weight of n**8, so that the last ninth of the samples counts most."""


class Average:
    """A weighted mean of samples of the weights, in float32 or better, beside the weights."""

    def __init__(self) -> None:
        self.count = 0
        self.tensors: list[Tensor] = []

    @torch.no_grad()
    def add(self, weights: Sequence[Tensor], left: float = math.inf) -> None:
        """Take a sample.

        Args:
            weights: the weights as they are now.
            left: the samples that will follow while rates fall to zero. The average spans no more samples than these,
                since weights at a smaller rate are better than their average with older ones.
        """
        weights = [local(p) for p in weights]
        self.count += 1
        if len(self.tensors) != len(weights):
            self.tensors = self.first(weights)
            return
        share = max((POWER + 1) / (POWER + self.count), 1 / (1 + left))
        plain = [(t, p) for t, p in zip(self.tensors, weights, strict=True) if t.dtype == p.dtype]
        if plain:
            torch._foreach_lerp_([t for t, _ in plain], [p for _, p in plain], share)
        for tensor, p in zip(self.tensors, weights, strict=True):
            if tensor.dtype != p.dtype:
                tensor.lerp_(_wide(p), share)

    @staticmethod
    def first(weights: Sequence[Tensor]) -> list[Tensor]:
        """The average of one sample."""
        with torch.inference_mode(False):
            return [_wide(p).clone() for p in weights]

    def saved(self) -> dict[str, Any]:
        """Its values, to be copied."""
        return {"count": self.count, "tensors": self.tensors}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over values; their memory belongs to the average from then on."""
        self.count, self.tensors = saved["count"], list(saved["tensors"])


def _wide(p: Tensor) -> Tensor:
    """The weights in a precision in which small shares do not get lost."""
    part = local(p)
    return part.float() if part.dtype in (torch.bfloat16, torch.float16) else part
