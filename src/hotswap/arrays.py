"""One algorithm, written once: for the numbers of one run, and for arrays that hold many.

Bandits, searches and rewards use operators, methods and functions that Python's numbers, NumPy's arrays and torch's
tensors share (torch accepts NumPy's `axis`), and reach the functions through `namespace`. An optimizer
has one run: its walk is plain numbers and its statistics are NumPy, whose calls on a handful of values cost a fraction
of torch's. Many runs at once are tensors on their device.
"""

from __future__ import annotations

import math
import sys
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "Device", "added_at", "bounded", "namespace", "places", "zeros"]

Array: TypeAlias = Any
"""A NumPy array, a torch tensor, or, for a single run, a number. Docstrings give shapes: R runs, K arms, T trials."""

Device: TypeAlias = Any
"""The place of arrays: a torch device, or None for NumPy."""


class Numbers:
    """NumPy's functions, for plain numbers."""

    isfinite = staticmethod(math.isfinite)
    log = staticmethod(math.log)
    minimum = staticmethod(min)
    maximum = staticmethod(max)

    @staticmethod
    def where(condition: bool, yes: Any, no: Any) -> Any:
        """`yes` or `no`."""
        return yes if condition else no

    @staticmethod
    def clip(value: Any, low: Any, high: Any) -> Any:
        """The value, brought between the two; None for no bound."""
        value = value if low is None else max(low, value)
        return value if high is None else min(high, value)

    @staticmethod
    def logical_not(condition: bool) -> bool:
        """The opposite."""
        return not condition

    @staticmethod
    def full_like(_: Any, value: Any) -> Any:
        """The value."""
        return value


def namespace(array: Array) -> Any:
    """The namespace with the functions that fit the array: `numpy`, `torch`, or `Numbers`."""
    if isinstance(array, np.ndarray):
        return np
    return Numbers if isinstance(array, (float, int)) else sys.modules["torch"]


def zeros(shape: tuple[int, ...], kind: str, device: Device) -> Array:
    """Zeros of the kind "float64" or "int64"."""
    if device is None:
        return np.zeros(shape, dtype=kind)
    torch = sys.modules["torch"]
    return torch.zeros(shape, dtype=getattr(torch, kind), device=device)


def places(count: int, like: Array) -> Array:
    """0, 1, … `count` − 1 as int64: in NumPy, or on the device of `like`."""
    xp = namespace(like)
    return xp.arange(count, dtype=xp.int64) if xp is np else xp.arange(count, dtype=xp.int64, device=like.device)


def added_at(array: Array, place: Array, value: Array, counts: Array | None = None) -> Array:
    """The array `(R, K)`, with values `(R, T)` added at places `(R, T)` of their rows, where they count.

    For arrays of NumPy, which hold few runs, the others may be lists.
    """
    if isinstance(array, np.ndarray):
        added = array.copy()
        for run, (ats, numbers) in enumerate(zip(place, value, strict=True)):
            for trial, (at, number) in enumerate(zip(ats, numbers, strict=True)):
                if counts is None or counts[run][trial]:
                    added[run, at] += number
        return added
    torch = sys.modules["torch"]
    there = place[:, :, None] == torch.arange(array.shape[1], device=array.device)  # no atomics: sums in a fixed order
    there = there if counts is None else there & counts[:, :, None]
    return array + torch.where(there, value[:, :, None], 0.0).sum(axis=1)


def bounded(array: Array, bound: float) -> Array:
    """The values brought into ±bound; NaN becomes −bound."""
    if isinstance(array, (float, int)):
        return max(-bound, min(bound, array)) if array == array else -bound  # noqa: PLR0124  # NaN is not
    if isinstance(array, np.ndarray):
        return np.fmin(np.fmax(array, -bound), bound)
    return array.nan_to_num(nan=-bound).clamp(-bound, bound)
