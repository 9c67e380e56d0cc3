"""Random numbers for R runs at a time that are part of a state, as arrays, and so saved and resumed with it.

A generator is an `(R, 2)` int64 array: for each run its seed and how often it has been drawn from. Numbers are a hash
of the two and of their place in the row (counter-based, like Philox: Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", 2011). So a run's numbers depend on nothing but its own seed, whichever runs are trained beside it; NumPy
and torch give the same ones (`uniform` to the bit, `normal` up to the rounding of their logarithms and cosines); and
drawing reads nothing back from a device, so that it works inside a CUDA graph.

    generator = generators(range(runs))
    values, generator = uniform(generator, arms)         # (R, K) in (0, 1), and the generator to draw from next
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

from hotswap.arrays import Array, Device, namespace, places

__all__ = ["generators", "normal", "uniform"]

# The constants of SplitMix64 (Steele, Lea and Flood, 2014), as signed 64-bit numbers; products wrap around.
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def generators(seeds: Sequence[int], device: Device = None) -> Array:
    """Generators `(R, 2)` that have not been drawn from, one for each seed: in NumPy, or on a torch device.

    A seed is any whole number; those that differ by a multiple of 2**64 are the same.
    """
    signed = [(int(seed) + 2**63) % 2**64 - 2**63 for seed in seeds]
    fresh = np.array([(seed, 0) for seed in signed], dtype=np.int64).reshape(-1, 2)
    return fresh if device is None else sys.modules["torch"].from_numpy(fresh).to(device)


def uniform(generator: Array, count: int) -> tuple[Array, Array]:
    """`(R, count)` numbers strictly between 0 and 1, float64, and the generator to draw from next."""
    xp = namespace(generator)
    place = (places(count, generator) + 1) ^ 0  # so that compilers, which count places in 32 bits, do not multiply them
    row = _mixed(_mixed(generator[:, :1]) + GOLDEN * (generator[:, 1:] + 1))
    bits = _mixed(row + GOLDEN * place)
    values = (xp.asarray(_shifted(bits, 12), dtype=xp.float64) + 0.5) * 2.0**-52
    drawn = generator + places(2, generator)  # the seed stays, the number of draws grows by one
    return values, drawn


def normal(generator: Array, count: int) -> tuple[Array, Array]:
    """`(R, count)` normally distributed numbers, float64, and the generator to draw from next (Box and Muller)."""
    xp = namespace(generator)
    values, drawn = uniform(generator, 2 * count)
    return xp.sqrt(-2 * xp.log(values[:, :count])) * xp.cos(2 * math.pi * values[:, count:]), drawn


def _mixed(bits: Array) -> Array:
    """SplitMix64's finalizer: every bit of the input changes about half of the output's."""
    bits = (bits ^ _shifted(bits, 30)) * MIX_1
    bits = (bits ^ _shifted(bits, 27)) * MIX_2
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Array, by: int) -> Array:
    """Shift right and fill with zeros; for signed numbers `>>` fills with the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
