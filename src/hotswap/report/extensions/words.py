"""Numbers and lists in the sentences about variants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["factor", "factors", "listed", "sizes"]


def factor(value: float) -> str:
    """How many times as much, with two digits or so: 1.3, 24, 1,300; above a million as a power of ten."""
    if value < 10:
        return f"{value:.1f}"
    digits = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return f"{round(value / digits) * digits:,.0f}" if value < 1e6 else f"{value:.0e}"


def factors(values: Iterable[float]) -> str:
    """`a factor of 1.3`, or `factors of 1.3 to 24`."""
    texts = [factor(value) for value in sorted(values)]
    return f"a factor of {texts[0]}" if texts[0] == texts[-1] else f"factors of {texts[0]} to {texts[-1]}"


def listed(words: Sequence[str]) -> str:
    """`64, 128 and 256`."""
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"


def sizes(some: Sequence[int], of: Sequence[int]) -> str:
    """Some of the batch sizes: by number, or all of them."""
    if len(some) == len(of) > 1:
        return "both batch sizes" if len(of) == 2 else f"all {len(of)} batch sizes"
    return f"batch {listed([str(size) for size in some])}"
