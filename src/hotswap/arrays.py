"""One algorithm, two kinds of array: bandits, searches and rewards are written for both.

An optimizer has one run and keeps its statistics in NumPy, whose calls on a handful of numbers cost a fraction of
torch's; many runs at once keep theirs in tensors on their device. The two agree in more than they differ: the code uses
operators, methods and functions that both have (torch accepts NumPy's `axis` and `keepdims`), through `namespace`.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "Device", "arange_like", "namespace", "zeros"]

Array: TypeAlias = Any
"""A NumPy array or a torch tensor. Shapes are in the docstrings: R runs, K arms, T trials."""

Device: TypeAlias = Any
"""Where arrays live: a torch device, or None for NumPy."""


def namespace(array: Array) -> Any:
    """The module whose functions fit the array: `numpy` or `torch`."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def zeros(shape: tuple[int, ...], kind: str, device: Device) -> Array:
    """Zeros of the kind "float64" or "int64"."""
    if device is None:
        return np.zeros(shape, dtype=kind)
    torch = sys.modules["torch"]
    return torch.zeros(shape, dtype=getattr(torch, kind), device=device)


def arange_like(array: Array, count: int) -> Array:
    """0, 1, ..., count − 1, where the array is."""
    if isinstance(array, np.ndarray):
        return np.arange(count)
    return sys.modules["torch"].arange(count, device=array.device)
