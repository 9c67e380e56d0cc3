"""What the benchmarks measured, as Markdown: `python -m benchmarks.NAME --keep results/benchmarks` writes the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from measured import ROOT, table

from hotswap.bench.report.methods import label

FOLDER = ROOT / "results" / "benchmarks"
Row = Mapping[str, Any]


@cache
def kept(name: str) -> list[Row]:
    """The files of a benchmark, one for each kind of device."""
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob(f"{name}-*.json"))]


def rows_of(name: str) -> list[tuple[Row, str]]:
    """Each row of a benchmark, and its device."""
    return [(row, short(file["device"])) for file in kept(name) for row in file["rows"]]


def told(*names: str, shown: str, more: Sequence[str] = ()) -> str:
    """A table, further paragraphs, and the source of the numbers."""
    files = [file for name in names for file in kept(name)]
    lines = [f"`{f['command']}`: {f['device']}, torch {f['torch']}, Python {f['python']}, {f['date']}" for f in files]
    return "\n\n".join([shown, *more, f"*{'; '.join(lines)}.*"])


def short(device: str) -> str:
    """`H200`, `CPU`."""
    return device.removeprefix("NVIDIA ").partition(",")[0]


def by_network(name: str, columns: Mapping[str, Callable[[Row], str]], more: Sequence[str] = ()) -> str:
    """A table of a benchmark: network, device, and a column for each of these functions; then further paragraphs."""
    rows = [(row["network"], device, *(cell(row) for cell in columns.values())) for row, device in rows_of(name)]
    return told(name, shown=table(("network", "device", *columns), rows, left=2), more=more)


STEP_COST: dict[str, Callable[[Row], str]] = {
    "over SGD": "{ratio:.2f}".format_map,
    "limit": "{limit:.2f}".format_map,
    "overhead": lambda row: f"{row['ratio'] / row['limit']:.2f}",
    "trials per step": "{trials:.2f}".format_map,
    "memory, kept / peak": "{extra_sgd[0]:.2f} / {extra_sgd[1]:.2f}".format_map,
}
"""A hot-swapped step beside one of SGD."""


def protections() -> str:
    """What it costs to be right."""
    file = kept("protections")[0]
    columns: dict[str, Callable[[Row], str]] = {
        "step, ms": lambda row: f"{1e3 * row['step']:.2f}",
        "without, ms": lambda row: f"{1e3 * row['bare']:.2f}",
    }
    for name in file["rows"][0]["spent"]:
        columns[f"{name}, ms a trial"] = lambda row, name=name: f"{1e3 * row['spent'][name] / row['trials']:.3f}"
    columns["of a step, together"] = lambda row: (
        f"{row['longer'] / row['step']:.1%} ± {row['unsure'] / row['step']:.1%}"
    )
    decision = 1e3 * file["one_decision"]
    more = f"One decision of two processes on one machine (gloo) takes {decision:.2f} ms a trial more."
    return by_network("protections", columns, [more])


def study_speed() -> str:
    """The ensemble beside single runs and beside the hardware."""
    (file,) = kept("study-speed")
    rows = []
    for row in sorted(file["rows"], key=lambda row: ("sgd", "adadelta", "ducb").index(row["algorithm"])):
        runs, step = row["runs"], row["step"]
        speed = runs / step / (50_000 // row["batch"])
        over = (f"{runs * row['loop'] / step:.0f}×", f"{runs * row['alone'] / step:.1f}×")
        floors = [f"{row[name] / step:.0%}" if row["algorithm"] == "sgd" else "" for name in ("by_bytes", "by_flop")]
        rows.append(
            (row["algorithm"], f"{row['batch']}", f"{runs}", f"{1e3 * step:.3f}", f"{speed:.0f}", *over, *floors)
        )
    headings = ("algorithm", "batch", "runs", "ms a step", "run-epochs a second", "over a PyTorch loop")
    more = ("over one run in the same engine", "of the bytes floor", "of the arithmetic floor")
    ceilings = f"{file['bytes_per_second'] / 1e12:.2f} TB/s copying, {file['flop_per_second'] / 1e12:.0f} TFLOP/s"
    return told(
        "study-speed", shown=table((*headings, *more), rows), more=[f"Ceilings measured in the same run: {ceilings}."]
    )


def adam_grids() -> str:
    """Grids of different tops around AdamW: held-out losses, and how often the rate was the largest one."""
    every = [row for row, _ in rows_of("adam-grids")]
    methods, networks = (list(dict.fromkeys(row[name] for row in every)) for name in ("method", "network"))
    rows = []
    for method in methods:
        own = [row for row in every if row["method"] == method]
        tops = [row["at_top"] for row in own if row["at_top"] is not None]
        losses = (", ".join(f"{row['loss']:.2f}" for row in own if row["network"] == one) for one in networks)
        rows.append((method, *losses, f"{min(tops):.0%} to {max(tops):.0%}" if tops else ""))
    return told("adam-grids", shown=table(("", *networks, "steps with the largest rate"), rows))


def pass_time() -> str:
    """The seconds of a pass of each method over those of a pass of AdamW, by workload."""
    columns = rows_of("pass-time")
    names = dict.fromkeys(name for row, _ in columns for name in row["ratios"])
    plain = [_or_dash(row["adamw"] and 1e3 * row["adamw"]) for row, _ in columns]
    rows = [("AdamW, ms a pass", *plain, copies("adamw"))]
    rows += [(label(name), *(_or_dash(row["ratios"].get(name)) for row, _ in columns), copies(name)) for name in names]
    headings = (f"{row['workload'].replace('_', ' ')}, {device}" for row, device in columns)
    return told("pass-time", "memory", shown=table(("", *headings, "copies of the weights"), rows))


def pass_times(name: str) -> str:
    """The least and the greatest of a method's ratios, by device; within a sentence."""
    values: dict[str, list[float]] = {}
    for row, device in rows_of("pass-time"):
        values.setdefault(device, []).extend(filter(None, [row["ratios"].get(name)]))
    return " and ".join(f"{ends(some)} times as long ({device})" for device, some in values.items() if some) or "–"


def ends(values: Iterable[float]) -> str:
    """`1.20 to 1.30`, or `1.20` where both are the same."""
    some = list(values)
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(some), max(some))))


@cache
def copies(method: str) -> str:
    """What a method keeps between steps of the paper's network, in copies of the weights; a dash if nobody knows."""
    rows = [row["copies"] for row, _ in rows_of("memory") if row["workload"] == "paper_network"]
    return next((f"{row[method]:.0f}" for row in rows if method in row), "–")


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def demo() -> str:
    """The demo's table, as `hotswap demo` wrote it."""
    rows, made = (FOLDER.parent / "demo" / "results.md").read_text().strip().rsplit("\n\n", 1)
    return f"{rows}\n\n*{made}.*"


BLOCKS: dict[str, Callable[[], str]] = {
    "adam grids": adam_grids,
    "demo": demo,
    "pass time": pass_time,
    "step cost": partial(by_network, "step-cost", STEP_COST),
    "protections": protections,
    "study speed": study_speed,
}
