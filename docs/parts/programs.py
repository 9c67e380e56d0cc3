"""Programs that others wrote, raced: `python -m benchmarks.programs --keep results/programs` writes the runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from statistics import median
from typing import Any

from measured import ROOT, table

sys.path.append(str(ROOT))

from benchmarks.programs.__main__ import OPTIMIZERS, hunks
from benchmarks.programs.diffs import changed_lines
from benchmarks.programs.listed import PROGRAMS, Program

Row = Mapping[str, Any]
NAMES = {"own": "own", "race": "race", "prodigy": "Prodigy", "schedule_free": "Schedule-Free"}


@cache
def kept(device: str) -> list[Row]:
    """The runs on a CPU or a GPU."""
    path = ROOT / "results" / "programs" / f"programs-{device}.json"
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return [row for row in rows if row["program"] in PROGRAMS]


def changes() -> str:
    """How many lines a race changes in each program, and how it gets its losses."""
    rows = []
    for program in PROGRAMS.values():
        counted, further = (str(changed_lines(hunks(program, kind))) for kind in ("race", "data"))
        link = f"https://github.com/{program.source}"
        folder = "" if program.folder == "." else f" `{program.folder}`"
        rows.append((program.name, f"[{program.source}]({link}){folder}", counted, further, program.loss))
    headings = ("program", "from", "lines", "of data", "how the race gets its loss")
    return table(headings, rows, left=5)


def results(device: str) -> str:
    """Where each optimizer ends in each program: the median over seeds."""
    rows = [_line(program, kept(device)) for program in PROGRAMS.values()]
    seconds = "processor seconds" if device == "cpu" else "seconds"
    headings = ("program", "number", "own optimizer", *NAMES.values(), f"{seconds}, own / race")
    return f"{table(headings, rows, left=3)}\n\n{_partial(kept(device))}\n\n{_origin(kept(device))}".strip()


def _line(program: Program, runs: Iterable[Row]) -> tuple[str, ...]:
    found = {name: [r for r in runs if (r["program"], r["optimizer"]) == (program.name, name)] for name in OPTIMIZERS}
    ends = {name: median(r["number"] for r in some) for name, some in found.items() if some}
    best = (max if program.higher else min)(ends.values()) if len(ends) == len(OPTIMIZERS) else None
    cells = (f"**{_short(ends[n])}**" if n in ends and ends[n] == best else _short(ends.get(n)) for n in OPTIMIZERS)
    column = "processor_seconds" if any(r["device"].startswith("CPU") for r in runs) else "seconds"
    times = (median(r[column] for r in found[n]) if found[n] else None for n in ("own", "race"))
    shown = " / ".join("–" if time is None else f"{time:.0f}" for time in times)
    measured = f"{program.measured}{', higher is better' if program.higher else ''}"
    return program.name, measured, program.own, *cells, shown


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _partial(runs: Iterable[Row]) -> str:
    """A sentence on what is still missing."""
    seeds = {(r["program"], r["optimizer"]): 0 for r in runs}
    for r in runs:
        seeds[r["program"], r["optimizer"]] += 1
    every = len(PROGRAMS) * len(OPTIMIZERS)
    if len(seeds) < every:
        return f"**Partial results:** {len(seeds)} of {every} cells have been run; the others show –. {_seeds(seeds)}"
    return _seeds(seeds)


def _seeds(counts: Mapping[Any, int]) -> str:
    most, least = max(counts.values(), default=0), min(counts.values(), default=0)
    return "One seed." if most == 1 else f"Medians over {most if most == least else f'{least} to {most}'} seeds."


def _origin(runs: Iterable[Row]) -> str:
    lines = {f"{r['device']}, torch {r['torch']}, Python {r['python']}" for r in runs}
    days = sorted({r["date"] for r in runs})
    return f"*`python -m benchmarks.programs`: {'; '.join(sorted(lines))}, {days[0]} to {days[-1]}.*" if days else ""


BLOCKS: dict[str, Callable[[], str]] = {
    "programs changed": changes,
    "programs cpu": lambda: results("cpu"),
    "programs cuda": lambda: results("cuda"),
}
