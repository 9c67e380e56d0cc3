"""What the benchmarks measured, as Markdown: `python -m benchmarks.NAME --keep results/benchmarks` writes the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from measured import table
from tuning_free import results

from hotswap.bench.report.comparing import best_first, is_ours
from hotswap.bench.report.looks import label
from hotswap.bench.report.origin import with_article
from hotswap.bench.scores import scores

FOLDER = Path(__file__).resolve().parents[2] / "results" / "benchmarks"


def kept(name: str) -> list[dict[str, Any]]:
    """The files of a benchmark, one for each kind of device."""
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob(f"{name}-*.json"))]


def sources(files: Iterable[dict[str, Any]]) -> str:
    """Where the numbers come from, below them."""
    lines = [f"`{f['command']}`: {f['device']}, torch {f['torch']}, Python {f['python']}, {f['date']}" for f in files]
    return f"*{'; '.join(lines)}.*"


def short(device: str) -> str:
    """`H200`, `CPU`."""
    return device.removeprefix("NVIDIA ").partition(",")[0]


def by_network(
    files: Iterable[dict[str, Any]], cells: Callable[[dict[str, Any]], Iterable[str]]
) -> list[tuple[str, ...]]:
    """Rows of a table: the network, the device, and what is told of them."""
    return [(row["network"], short(file["device"]), *cells(row)) for file in files for row in file["rows"]]


def step_cost() -> str:
    """A hot-swapped step beside one of SGD."""
    files = kept("step-cost")
    rows = by_network(
        files,
        lambda row: (
            *(f"{row[name]:.2f}" for name in ("ratio", "limit")),
            f"{row['ratio'] / row['limit']:.2f}",
            f"{row['trials']:.2f}",
            f"{row['extra_sgd'][0]:.2f} / {row['extra_sgd'][1]:.2f}",
        ),
    )
    headings = ("network", "device", "over SGD", "limit", "overhead", "trials per step", "memory, kept / peak")
    return f"{table(headings, rows, left=2)}\n\n{sources(files)}"


def protections() -> str:
    """What it costs to be right."""
    files = kept("protections")
    names = list(files[0]["rows"][0]["spent"])
    rows = by_network(
        files,
        lambda row: (
            *(f"{1e3 * row[name]:.2f}" for name in ("step", "bare")),
            *(f"{1e3 * row['spent'][name] / row['trials']:.3f}" for name in names),
            f"{row['longer'] / row['step']:.1%} ± {row['unsure'] / row['step']:.1%}",
        ),
    )
    each = (f"{name}, ms a trial" for name in names)
    headings = ("network", "device", "step, ms", "without, ms", *each, "of a step, together")
    decision = 1e3 * files[0]["one_decision"]
    more = f"One decision of two processes on one machine (gloo) takes {decision:.2f} ms a trial more."
    return f"{table(headings, rows, left=2)}\n\n{more}\n\n{sources(files)}"


def study_speed() -> str:
    """The ensemble beside single runs and beside the hardware."""
    (file,) = kept("study-speed")
    rows = []
    for row in file["rows"]:
        runs, step, sgd = row["runs"], row["step"], row["algorithm"] == "sgd"
        rows.append(
            (
                row["algorithm"],
                str(row["batch"]),
                str(runs),
                f"{1e3 * step:.3f}",
                f"{runs / step / (50_000 // row['batch']):.0f}",
                f"{runs * row['loop'] / step:.0f}×",
                f"{runs * row['alone'] / step:.1f}×",
                f"{row['by_bytes'] / step:.0%}" if sgd else "",
                f"{row['by_flop'] / step:.0%}" if sgd else "",
            )
        )
    rows.sort(key=lambda row: ("sgd", "adadelta", "ducb").index(row[0]))
    headings = ("algorithm", "batch", "runs", "ms a step", "run-epochs a second", "over a PyTorch loop")
    more = ("over one run in the same engine", "of the bytes floor", "of the arithmetic floor")
    ceilings = f"{file['bytes_per_second'] / 1e12:.2f} TB/s copying, {file['flop_per_second'] / 1e12:.0f} TFLOP/s"
    return f"{table((*headings, *more), rows)}\n\nCeilings measured in the same run: {ceilings}.\n\n{sources([file])}"


def adam_grids() -> str:
    """Grids of different tops around AdamW: held-out losses, and how often the rate was the largest one."""
    files = kept("adam-grids")
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in (row for file in files for row in file["rows"]):
        found.setdefault(row["method"], {}).setdefault(row["network"], []).append(row)
    networks = list(next(iter(found.values())))
    rows = []
    for method, by_network in found.items():
        losses = (", ".join(f"{row['loss']:.2f}" for row in by_network[network]) for network in networks)
        tops = [row["at_top"] for each in by_network.values() for row in each if row["at_top"] is not None]
        rows.append((method, *losses, f"{min(tops):.0%} to {max(tops):.0%}" if tops else ""))
    return f"{table(('', *networks, 'steps with the largest rate'), rows)}\n\n{sources(files)}"


def pass_time() -> str:
    """The seconds of a pass of each method over those of a pass of AdamW, by workload; or a sentence."""
    files = kept("pass-time")
    if not files:
        return "Not measured yet."
    columns = [(row, short(file["device"])) for file in files for row in file["rows"]]
    headings = [f"{row['workload'].replace('_', ' ')}, {device}" for row, device in columns]
    passes = ("–" if row["adamw"] is None else f"{1e3 * row['adamw']:.2f}" for row, _ in columns)
    plain = ("AdamW, ms a pass", *passes, copies("adamw"))
    names = dict.fromkeys(name for row, _ in columns for name in row["ratios"])
    rows = [(label(name), *(_ratio(row["ratios"].get(name)) for row, _ in columns), copies(name)) for name in names]
    return f"{table(('', *headings, 'copies of the weights'), [plain, *rows])}\n\n{sources([*files, *kept('memory')])}"


def pass_time_in_short() -> str:
    """Of the best of ours and of the others, and the most of all; within a sentence."""
    rows = [row for file in kept("pass-time") for row in file["rows"]]
    found = [(value, name, row["workload"]) for row in rows for name, value in row["ratios"].items() if value]
    if not found:
        return "–"
    timed = {name for _, name, _ in found}
    ranked = [row.method for row in best_first(scores(results() or {})) if row.method in timed]
    best = (next((name for name in ranked if is_ours(name) == ours), None) for ours in (True, False))
    told = (f"a pass of {label(name)} takes {pass_times(name)}" for name in best if name is not None)
    most = (max(one for one in found if is_ours(one[1]) == ours) for ours in (True, False))
    named = (f"{value:.2f} ({label(name)} on `{workload}`)" for value, name, workload in most)
    return f"{'; '.join(told)}. The most of ours is {' and of the others '.join(named)}"


def pass_times(*names: str) -> str:
    """The least and the greatest of these ratios for some methods, by device; within a sentence."""
    parts = []
    for file in kept("pass-time"):
        values = [value for row in file["rows"] for name in names if (value := row["ratios"].get(name))]
        if not values:
            continue
        ends = dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values)))
        parts.append(f"{' to '.join(ends)} times as long on {with_article(short(file['device']))}")
    return " and ".join(parts) or "–"


@cache
def copies(method: str) -> str:
    """What a method keeps between steps of the paper's network, in copies of the weights; a dash if nobody knows."""
    rows = [row for file in kept("memory") for row in file["rows"] if row["workload"] == "paper_network"]
    return next((f"{row['copies'][method]:.0f}" for row in rows if method in row["copies"]), "–")


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def demo() -> str:
    """The demo's table, as `hotswap demo` wrote it."""
    rows, made = (FOLDER.parent / "demo" / "results.md").read_text().strip().rsplit("\n\n", 1)
    return f"{rows}\n\n*{made}.*"


BLOCKS: dict[str, Callable[[], str]] = {
    "adam grids": adam_grids,
    "demo": demo,
    "pass time": pass_time,
    "pass time in short": pass_time_in_short,
    "step cost": step_cost,
    "protections": protections,
    "study speed": study_speed,
}
