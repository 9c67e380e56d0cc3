"""Variants of a race, as Markdown: `python -m benchmarks.race_variants` writes the table that this reads."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean

from measured import table

FILE = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "race-variants-cpu.csv"

VARIANTS = {
    "race": "**the default**",
    "short": "rounds half as long",
    "long": "a fourth round, until 20 % of the steps",
    "two_rounds": "two rounds, which keep 3 and 1",
    "finer": "three rates within half a step of the grid around the best lane, in the last round",
    "upward": "the same, with larger rates only",
    "fitted": "ranked by a line through the last two thirds over log(steps), at twice the steps",
    "close_05": "of lanes within 5 % of what the best has gained, the largest rate",
    "nudged": "the winner's rate half a step of the grid larger",
    "decays": "lanes over weight decay too, 0.1 and 0",
    "bases": "three more lanes of SGD with momentum, rates 1, 0.3 and 0.1; 5 of the 9 stay at first",
    "bases_4": "the same, with the default rounds: 4 stay at first",
}
"""In words."""

SEEDS = {"seed 0": ("0",), "seed 1": ("1",), "seeds 2 and 3": ("2", "3")}

Pair = tuple[str, str]
"""A workload and a seed."""


def measures() -> dict[str, dict[Pair, float]]:
    """Of each method, its validation measure by workload and seed."""
    found: dict[str, dict[Pair, float]] = {}
    with FILE.open(newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["method"], {})[row["workload"], row["seed"]] = float(row["validation"])
    return found


def ratios(found: dict[str, dict[Pair, float]], method: str, seeds: Sequence[str]) -> list[float]:
    """The method's measures over those of the best AdamW of the same seed."""
    plain = [of for name, of in found.items() if name.startswith("adamw_")]
    return [
        measure / min(of.get(pair, math.inf) for of in plain)
        for pair, measure in found[method].items()
        if pair[1] in seeds
    ]


def variants() -> str:
    """Geometric mean and worst case over the best AdamW, of what was tried."""
    found = measures()
    rows = []
    for method, words in VARIANTS.items():
        parts = [ratios(found, method, seeds) for seeds in SEEDS.values()]
        rows.append((words, *(f"{geometric_mean(part):.3f} / {max(part):.2f}" if part else "" for part in parts)))
    return table(("variant, mean / worst", *SEEDS), rows)


def small_rates() -> str:
    """How far the three smallest rates of AdamW were from the best with the first seed."""
    found = measures()
    means = [geometric_mean(ratios(found, f"adamw_{rate}", ("0",))) for rate in ("0.00098", "0.00031", "0.0001")]
    return f"{min(means):.1f} to {max(means):.1f}"


def without_logistic() -> str:
    """Lanes of two optimizers beside the default, where weight decay does not decide."""
    found = {
        method: {pair: measure for pair, measure in of.items() if pair[0] != "logistic_regression"}
        for method, of in measures().items()
    }
    bases, rounds, default = (geometric_mean(ratios(found, name, EVERY)) for name in ("bases", "bases_4", "race"))
    return f"{bases:.3f}, {rounds:.3f} with the default rounds, and {default:.3f} for the default"


def in_short(method: str, seeds: Sequence[str]) -> str:
    """The geometric mean over workloads and seeds, for a sentence."""
    return f"{geometric_mean(ratios(measures(), method, seeds)):.2f}"


EVERY = tuple(seed for seeds in SEEDS.values() for seed in seeds)


BLOCKS: dict[str, Callable[[], str]] = {
    "race variants": variants,
    "small rates": small_rates,
    "without logistic regression": without_logistic,
    "race in short": partial(in_short, "race", EVERY),
    "race of two in short": partial(in_short, "bases_4", EVERY),
    "default rate in short": partial(in_short, "adamw_0.00098", SEEDS["seed 0"]),
    "good rate in short": partial(in_short, "adamw_0.0096", EVERY),
}
