"""One finding for each variant: a sentence with its numbers, whichever way they fall."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hotswap.report.extensions.comparison import Comparison
from hotswap.report.extensions.variants import changes, group_of
from hotswap.report.extensions.words import factors, listed, sizes
from hotswap.studies.algorithms import HotSwapFamily

__all__ = ["ALIKE", "Finding", "finding", "findings"]

ALIKE = 1.1
"""Objectives that differ by less than this factor are called about the same: seeds differ by as much."""


class Finding(NamedTuple):
    """What came of one variant."""

    variant: str
    group: str
    change: str
    sentence: str


def findings(comparison: Comparison) -> list[Finding]:
    """One of each variant but the paper's algorithm, in the order of the study."""
    return [finding(comparison, family) for family in comparison.others]


def finding(comparison: Comparison, family: HotSwapFamily) -> Finding:
    """What a variant's objective is beside the paper's at equal cost, and what it takes to get there."""
    change = changes(family, comparison.paper)
    parts: list[str] = []
    for cost in reversed(comparison.moments):
        ratios = {size: comparison.ratio(family.name, size, cost) for size in comparison.batch_sizes}
        begin = f"at that of {cost} it is" if parts else f"the objective at the cost of {cost} plain epochs is"
        parts.append(f"{begin} {_against(ratios)}")
    parts += [_errors(comparison, family.name), _effort(comparison, family.name)]
    sentence = f"With {change}, {'; '.join(part for part in parts if part)}."
    return Finding(family.name, group_of(family, comparison.paper), change, sentence)


def _against(ratios: Mapping[int, float]) -> str:
    """The variant's objective over the paper's at each batch size, in words.

    For instance "lower than the paper's at batch 64 and 128 (by factors of 1.3 to 2.0) and higher at batch 256 (...)".
    """
    every = list(ratios)
    kinds: dict[str, list[int]] = {"lower": [], "alike": [], "higher": [], "lost": [], "unknown": []}
    for size, ratio in ratios.items():
        kinds[_kind(ratio)].append(size)
    if len(kinds["unknown"]) == len(every):
        return "not recorded"
    parts: list[str] = []
    for kind, some in kinds.items():
        if some:
            parts.append(
                f"{_WORDS[kind][bool(parts)]} {sizes(some, every)}{_by(kind, [ratios[size] for size in some])}"
            )
    return listed(parts)


_WORDS = {
    "lower": ("lower than the paper's at", "lower at"),
    "alike": (f"within {ALIKE - 1:.0%} of the paper's at", f"within {ALIKE - 1:.0%} of it at"),
    "higher": ("higher than the paper's at", "higher at"),
    "lost": ("not finite at", "not finite at"),
    "unknown": ("not recorded at", "not recorded at"),
}
"""How each way begins: as the first of a sentence, and after another."""


def _by(kind: str, ratios: Sequence[float]) -> str:
    if kind == "lower":
        return f" (by {factors(1 / ratio for ratio in ratios)})" if all(ratios) else " (down to 0)"
    return f" (by {factors(ratios)})" if kind == "higher" else ""


def _kind(ratio: float) -> str:
    if math.isnan(ratio):
        return "unknown"
    if math.isinf(ratio):
        return "lost"
    if ratio < 1 / ALIKE:
        return "lower"
    return "higher" if ratio > ALIKE else "alike"


def _errors(comparison: Comparison, name: str) -> str:
    """Test error at the last of the moments, the median over batch sizes."""
    cost, every = comparison.moments[-1], comparison.batch_sizes
    mine, its = (
        np.median([comparison.value(who, size, cost, "test_error") for size in every]) for who in (name, "paper")
    )
    if not np.isfinite([mine, its]).all():
        return ""
    return f"its median test error at {cost} is {mine:.2%} (the paper's: {its:.2%})"


def _effort(comparison: Comparison, name: str) -> str:
    """Trials per step and the cost of an epoch, the median over batch sizes."""
    mine = _over_sizes(comparison, name)
    if any(math.isnan(number) for number in mine):
        return "what its trials cost is not known"
    text = f"with {mine[0]:.2f} trials per step an epoch costs {mine[1]:.2f} plain ones"
    its = _over_sizes(comparison, comparison.paper.name) if comparison.paper is not None else (math.nan, math.nan)
    if any(math.isnan(number) for number in its):
        return text
    return f"{text} (the paper's: {its[0]:.2f} and {its[1]:.2f})"


def _over_sizes(comparison: Comparison, name: str) -> tuple[float, float]:
    trials = [comparison.trials(name, size) for size in comparison.batch_sizes]
    costs = [comparison.relative_cost(name, size) for size in comparison.batch_sizes]
    return float(np.median(trials)), float(np.median(costs))
