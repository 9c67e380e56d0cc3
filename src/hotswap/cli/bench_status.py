"""`hotswap bench status`: where a benchmark stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from hotswap.bench.methods import METHODS
from hotswap.bench.plan import wanted
from hotswap.bench.runs import SETTLED, STATES, Result, Run, troubles
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.cli.console import out

__all__ = ["show_status"]


def show_status(folder: Path, workload: Sequence[str] | None, method: Sequence[str] | None) -> None:
    """Print a table of the runs that there are, by workload and method, and sentences on what went wrong."""
    for name in workload or ():
        WORKLOADS.find(name, "--workload")
    for name in method or ():
        METHODS.find(name, "--method")
    store = BenchStore.open(folder)
    results = store.results()
    for sentence in store.damaged:
        out.print(sentence, style="yellow", markup=False, soft_wrap=True)
    asked = wanted(workload or sorted(WORKLOADS), method or list(METHODS), store.size, results)
    where = {run.id: place for run in asked if (place := store.running(run)) is not None}
    states = {run.id: "left" if run.id not in results else results[run.id].state for run in asked}
    states.update(dict.fromkeys(where, "running"))
    begun = {_pair(run) for run in asked if states[run.id] != "left"}
    runs = asked if workload or method else [run for run in asked if _pair(run) in begun]
    out.print(_table(f"Runs, size {store.size}", runs, states))
    for run_id, place in where.items():
        out.print(f"{run_id}: running ({place})", highlight=False, markup=False, soft_wrap=True)
    shown = {_pair(run) for run in runs}
    named = bool(workload or method)
    for sentence in troubles(one for one in results.values() if not named or _pair(one.run) in shown):
        out.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if strangers := sum(run.workload not in WORKLOADS or run.method not in METHODS for run in _runs(results)):
        more = f"{strangers} {'is' if strangers == 1 else 'are'} of workloads or methods that are not known here"
        out.print(f"{more}; load yours with hotswap --load FILE.")
    if len(runs) < len(asked):
        out.print(f"{len(asked) - len(runs)} runs are of workloads and methods of which none has begun.")
    ended = sum(states[run.id] in SETTLED for run in runs)
    there = [results[run.id] for run in runs if run.id in results]
    seconds = sum(result.points[-1].seconds for result in there if result.points)
    out.print(
        f"{ended} of {len(runs)} runs that are known so far have ended; trained for {seconds / 60:.1f} min, added up."
    )


def _table(title: str, runs: Sequence[Run], states: Mapping[str, str]) -> Table:
    """How many runs of each workload and method are in which state."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for run in runs:
        counts.setdefault(_pair(run), Counter())[states[run.id]] += 1
    seen = {state for found in counts.values() for state in found}
    names = [state for state in (*STATES, "running", "left") if state in seen]
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("workload", "method", *names):
        table.add_column(heading, justify="right" if heading in names else "left", no_wrap=True)
    for pair, found in counts.items():
        table.add_row(*pair, *(str(found[name] or "") for name in names))
    return table


def _pair(run: Run) -> tuple[str, str]:
    return run.workload, run.method


def _runs(results: Mapping[str, Result]) -> Iterator[Run]:
    return (result.run for result in results.values())
