"""What studies on a cluster cost, and what follows: from `results/benchmarks/cluster-cpu.json` and `results/paper`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from benchmarked import kept, told
from extracts import source
from measured import ROOT, seconds_by_unit, table

from hotswap.studies import PAPER

PRICE = 4.0
"""Dollars for an hour of one H200: an assumption, since prices differ."""


@cache
def measured() -> dict[str, Any]:
    """The benchmark's file."""
    (file,) = kept("cluster")
    return file


def folder() -> dict[str, float]:
    """What was stored how fast; files of before 2026-11-19 call it the keeper."""
    found: dict[str, float] = measured().get("folder") or measured()["keeper"]
    return found


def efficiency() -> str:
    """1, 2 and 4 workers beside the same in turn."""
    rows = [
        (
            str(row["workers"]),
            *(f"{row[name]:.1f}" for name in ("in_turn", "first", "again")),
            f"{row['in_turn'] / row['again'] / row['workers']:.0%}",
        )
        for row in measured()["rows"]
    ]
    headings = ("workers", "in turn, s", "on Ray, s", "workers there already, s", "efficiency")
    machine = f"The machine has {measured()['cores']} cores, so that more workers than that cannot be faster."
    return told("cluster", shown=table(headings, rows, left=0), more=[machine])


def sleepers() -> str:
    """A sentence on units that only sleep."""
    slept = measured()["sleepers"]
    beyond = slept["seconds"] * slept["workers"] / slept["units"] - slept["sleep"]
    return (
        f"{slept['units']:,} units that sleep {slept['sleep']:g} s and record a row took {slept['seconds']:.0f} s on "
        f"{slept['workers']} workers: {1e3 * beyond:.0f} ms of a worker for each beside its sleep, and "
        f"{slept['units'] / slept['seconds']:.0f} units a second."
    )


@cache
def seconds_per_run() -> float:
    """Of one GPU, for one of the paper's runs in its unit."""
    return sum(seconds_by_unit().values()) / len(PAPER.runs())


def scale() -> str:
    """Studies of a thousand, a hundred thousand and ten million runs."""
    lines = []
    for power in (3, 5, 7):
        runs = 10**power
        rows = runs * len(PAPER.recorded_epochs())
        hours = runs * seconds_per_run() / 3600
        lines.append(
            (
                f"10{'⁰¹²³⁴⁵⁶⁷'[power]}",
                f"{_round(hours):,}" if hours >= 1 else f"{hours:.1f}",
                f"{_round(max(1.0, hours * PRICE)):,}",
                f"{_round(rows):,}",
                _size(rows * folder()["bytes_per_row"]),
                _time(rows / folder()["per_second"]),
                _time(runs * measured()["planning"]),
                _time(rows * folder()["read_million"] / 1e6),
                _time(runs / len(PAPER.runs()) * measured()["reporting"]),
            )
        )
    headings = ("runs", "GPU hours", "dollars", "rows", "folder", "writing it", "planning", "reading it", "report")
    return table(headings, lines)


def gpus_per_command() -> str:
    """How many GPUs one command can serve."""
    each = len(PAPER.recorded_epochs()) / seconds_per_run()
    return f"about {_round(folder()['per_second'] / each):,}"


def _round(value: float) -> int:
    """To two digits: these are estimates."""
    return int(float(f"{value:.2g}"))


def _size(count: float) -> str:
    return _in_units(count, {"kB": 1e3, "MB": 1e6, "GB": 1e9}, most=1000)


def _time(seconds: float) -> str:
    return _in_units(seconds, {"s": 1, "min": 60, "h": 3600}, most=100)


def _in_units(value: float, units: dict[str, float], most: float) -> str:
    """In the first unit that needs no more than so many."""
    name, size = next(((n, s) for n, s in units.items() if value / s < most), list(units.items())[-1])
    return f"{float(f'{value / size:.2g}'):g} {name}"


BLOCKS: dict[str, Callable[[], str]] = {
    "cluster efficiency": efficiency,
    "cluster overhead": lambda: f"{1e3 * measured()['overhead']:.1f} ms",
    "cluster rows": lambda: f"{_round(folder()['per_second']):,}",
    "cluster sleepers": sleepers,
    "gpu price": lambda: f"{PRICE:g} dollars",
    "scale": scale,
    "gpus per command": gpus_per_command,
    "file slurm.sh": partial(source, ROOT / "examples" / "cluster" / "slurm.sh"),
}
