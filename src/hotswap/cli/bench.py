"""`hotswap bench`: compare methods on the same workloads at the same cost."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotswap.cli.console import make_folder, need, out, plain, say, show, warn
from hotswap.cli.training import Address, Device, Jobs, On, PerUnitAmounts, Place, Watching, place_of, watched
from hotswap.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hotswap.bench.methods import Configuration
    from hotswap.bench.runs import Run
    from hotswap.bench.store import BenchStore

app = typer.Typer(
    help="Compare methods that need no tuning, on the same workloads at the same cost; stop and go on at any time.",
    no_args_is_help=True,
)


AGAIN = "the same command tries them again"


class SizeName(StrEnum):
    """How large workloads are."""

    SMOKE = "smoke"
    FULL = "full"


@app.callback()
def _() -> None:
    for package in ("safetensors", "pandas", "pyarrow", "matplotlib"):
        need(package, "Benchmarks need what studies need", extra="bench")


BenchFolder = Annotated[Path, typer.Argument(help="The benchmark's folder.", metavar="DIR")]
WorkloadNames = Annotated[
    list[str] | None, typer.Option("--workload", help="Only this workload; repeat for more.", metavar="NAME")
]
MethodNames = Annotated[
    list[str] | None, typer.Option("--method", help="Only this method; repeat for more.", metavar="NAME")
]


@app.command("list")
def list_() -> None:
    """List the workloads and the methods, with the configuration that each method has everywhere."""
    from hotswap.bench.methods import METHODS
    from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
    from hotswap.bench.workloads import WORKLOADS

    rows = [
        (name, workload.title, workload.measured, "a GPU" if workload.wants_gpu else "")
        for name, workload in sorted(WORKLOADS.items())
    ]
    headings = ("name", "what it is", "measured", "wants")
    show("Workloads", headings, rows, words=headings, narrow=headings[1:])
    rows = []
    for name, method in METHODS.items():
        title = " ".join((method.title, f"({' '.join(method.package)})" if method.package else "")).strip()
        told = f"the best of {len(SEARCHED)} by validation" if name == REFERENCE else _configured(method.first)
        rows.append((name, plain(title), plain(told), plain(method.missing() or "yes")))
        if method.second is not None:
            kind = f", with {method.second.kind}" if method.second.kind else ""
            rows.append(("", "", plain(f"where that fails{kind}: {_configured(method.second)}"), ""))
    headings = ("name", "what it is", "configuration, and who recommends it", "here")
    show("Methods", headings, rows, words=headings, narrow=headings[1:])


def _configured(configuration: Configuration) -> str:
    from hotswap.bench.report.methods import settings_text

    return f"{settings_text(configuration.settings)} ({configuration.source})"


@app.command()
def run(
    out_dir: Annotated[Path, typer.Option("--out", help="The benchmark's folder; made if need be.", metavar="DIR")],
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this workload; repeat for more. Without it, those of full size that suit the device.",
            metavar="NAME",
        ),
    ] = None,
    method: MethodNames = None,
    size: Annotated[SizeName, typer.Option(help="Small for a look, or as the benchmark is.")] = SizeName.FULL,
    device: Device = "cpu",
    stop_after: Annotated[
        float | None, typer.Option(help="Begin no run after so many minutes.", metavar="MINUTES")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Train again what has raised an error, too.")
    ] = False,
    jobs: Jobs = 1,
    on: On = Place.HERE,
    address: Address = None,
    per_unit: PerUnitAmounts = None,
) -> None:
    """Train what is not there yet, or go on with it.

    Give the same command again after an interruption: what has ended is kept, and a run that was under way begins anew.
    A method that diverges or fails, and one whose package is missing, has a row that says so. The tuned reference is
    chosen when its search is complete, and is trained then; so is the second configuration of a method that fails.
    Several processes may work on one folder. Tables that were exported count where they lie in DIR.

    With `--on ray`, each run is a task of a Ray cluster. A run whose process or node dies begins anew elsewhere.
    """
    from hotswap.bench.comparable import check_before_running
    from hotswap.bench.methods import METHODS
    from hotswap.bench.running import BenchOptions, load_datasets, run_bench
    from hotswap.bench.store import BenchStore

    _check_names(workload, method)  # what is misspelt is said before a cluster is asked
    if stop_after is not None and not stop_after > 0:
        raise SettingError(f"--stop-after {stop_after:g}: give a number of minutes above 0.")
    ray_options = {"--address": address, "--per-unit": per_unit}
    killed = lambda result: result is not None and result.state == "killed"  # noqa: E731  # a GPU that failed stays so
    with place_of(on, device, jobs, ray_options, always=True, is_spent=killed) as where:
        chosen = BenchOptions(
            workloads=suitable(workload, where.device, size),
            methods=list(dict.fromkeys(method or METHODS)),
            retry_failed=retry_failed,
            stop_after=stop_after,
        )
        make_folder(out_dir)
        store = BenchStore.create(out_dir, size.value)
        check_before_running(store, chosen, where.device)
        data = load_datasets(chosen.workloads, size.value, say) if on is Place.RAY else {}
        watching = Watching("runs")
        with watched(watching, "the next measurements", "; the runs under way begin anew") as stopping:
            complete = run_bench(
                store,
                chosen,
                where.device,
                watching,
                stopping,
                elsewhere=where.elsewhere,
                threads=where.threads,
                data=data,
            )
    told, settled = _outcome(store, chosen.workloads, chosen.methods)
    if complete and settled:
        out.print(f"All of it has ended: {told}. Next: hotswap bench report {out_dir} --out FOLDER", soft_wrap=True)
    else:
        out.print(f"Not everything has ended: {told}. See: hotswap bench status {out_dir}", soft_wrap=True)


def _outcome(store: BenchStore, workloads: Sequence[str], methods: Sequence[str]) -> tuple[str, bool]:
    """A sentence on the runs that a command was asked for, with the next step; and whether all of them have ended."""
    from hotswap.bench.plan import wanted
    from hotswap.bench.runs import SETTLED, STATES

    results = store.results()
    runs = wanted(workloads, methods, store.size, results)
    counts = Counter(results[run.id].state if run.id in results else "left" for run in runs)
    hints = {"failed": " (--retry-failed tries them again)"}
    hints |= dict.fromkeys(("missing", "killed"), " (the same command tries them again)")
    told = [f"{counts[state]} {state}{hints.get(state, '')}" for state in (*STATES, "left") if counts[state]]
    settled = sum(counts[state] for state in SETTLED) == len(runs)
    return ", ".join(told) or "nothing was asked for", settled


def _check_names(workloads: list[str] | None, methods: list[str] | None) -> None:
    from hotswap.bench.methods import METHODS
    from hotswap.bench.workloads import WORKLOADS

    for name in workloads or ():
        WORKLOADS.find(name, "--workload")
    for name in methods or ():
        METHODS.find(name, "--method")


def suitable(names: Sequence[str] | None, device: str, size: SizeName) -> list[str]:
    """The workloads of these names, or those that suit a device; says what a person may not expect."""
    from hotswap.bench.workloads import WORKLOADS

    gpu, full = device.startswith("cuda"), size == SizeName.FULL
    if names:
        if full and not gpu and (large := [name for name in names if WORKLOADS[name].wants_gpu]):
            say(f"Meant for a GPU, and slow without one, many minutes a run: {', '.join(large)}.")
        return list(dict.fromkeys(names))
    fitting = [name for name, one in WORKLOADS.items() if not full or one.wants_gpu == gpu]
    if len(fitting) < len(WORKLOADS):
        say(f"On {device}: {', '.join(fitting)}. Name others with --workload.")
    return fitting


@app.command()
def status(folder: BenchFolder, workload: WorkloadNames = None, method: MethodNames = None) -> None:
    """Show what has ended and how, what is running and what is left, by workload and method.

    Without names, of the workloads and methods that have begun.
    """
    from hotswap.bench.methods import METHODS
    from hotswap.bench.plan import wanted
    from hotswap.bench.runs import SETTLED, STATES, troubles
    from hotswap.bench.store import BenchStore
    from hotswap.bench.workloads import WORKLOADS

    _check_names(workload, method)
    store = BenchStore.open(folder)
    results = store.results()
    warn(store.damaged)
    asked = wanted(workload or sorted(WORKLOADS), method or list(METHODS), store.size, results)
    where = {run.id: place for run in asked if (place := store.running(run)) is not None}
    counts: dict[tuple[str, str], Counter[str]] = {}
    for run in asked:
        state = "running" if run.id in where else results[run.id].state if run.id in results else "left"
        counts.setdefault(_pair(run), Counter())[state] += 1
    if not (workload or method):
        counts = {pair: found for pair, found in counts.items() if found.keys() - {"left"}}
    total = sum(counts.values(), Counter[str]())
    states = [state for state in (*STATES, "running", "left") if total[state]]
    rows = [(*pair, *(str(found[state] or "") for state in states)) for pair, found in counts.items()]
    show(f"Runs, size {store.size}", ("workload", "method", *states), rows, words=("workload", "method"))
    shown = [result for result in results.values() if not (workload or method) or _pair(result.run) in counts]
    told = [f"{run}: running ({place})" for run, place in where.items()] + troubles(shown)
    if strangers := sum(one.run.workload not in WORKLOADS or one.run.method not in METHODS for one in results.values()):
        more = f"{strangers} {'is' if strangers == 1 else 'are'} of workloads or methods that are not known here"
        told.append(f"{more}; load yours with hotswap --load FILE.")
    if total.total() < len(asked):
        told.append(f"{len(asked) - total.total()} runs are of workloads and methods of which none has begun.")
    ended, known = sum(total[state] for state in SETTLED), total.total()
    spent = sum(results[run.id].points[-1].seconds for run in asked if run.id in results and results[run.id].points)
    told.append(
        f"{ended} of {known} runs that are known so far have ended; trained for {spent / 60:.1f} min, added up."
    )
    for sentence in told:
        out.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _pair(run: Run) -> tuple[str, str]:
    return run.workload, run.method


@app.command()
def report(
    folder: BenchFolder,
    out_dir: Annotated[Path, typer.Option("--out", help="Where the report goes.", metavar="DIR")] = Path("report"),
) -> None:
    """Write a page, tables and figures: benchmark.html, benchmark.md, the curves of each workload, the profile.

    The page is one file that works offline: curves to point at, scores to sort, who is ahead of whom and where.
    A benchmark that is not finished gives the runs that have ended. DIR may also be a folder that `hotswap bench
    export` wrote.
    """
    from hotswap.bench.comparable import check_together
    from hotswap.bench.report import write_report
    from hotswap.bench.report.methods import three_digits
    from hotswap.bench.report.text import cautions, coverage
    from hotswap.bench.scores import overall, scores
    from hotswap.bench.store import BenchStore

    store = BenchStore.open(folder)
    results = store.results()
    check_together(results.values(), str(folder))
    warn(store.damaged)
    with out.status("Drawing ...") as progress:
        written = write_report(results, out_dir, lambda name: progress.update(f"Wrote {name} ..."))
    found = scores(results)
    if rows := overall(found):
        cells = [
            (
                row.method,
                str(row.workloads),
                three_digits(row.mean),
                three_digits(row.worst),
                str(len(row.misses)),
                str(len(row.failures)),
            )
            for row in rows
        ]
        headings = ("method", "workloads", "geometric mean", "worst", "misses", "diverged or failed on")
        show("Over all workloads; 1 is as good as tuned", headings, cells, narrow=headings[1:])
    covered = coverage(results, found)
    lacking = covered if not rows or len(covered) > 1 else []  # more than that all workloads are there
    warn(sentence.replace("`", "") for sentence in [*lacking, *cautions(results, found)])
    out.print(f"Wrote {len(written)} files. Open [bold]{plain(str(written[0]))}[/].")


@app.command()
def export(
    folder: BenchFolder,
    out_dir: Annotated[Path, typer.Argument(help="A folder for the tables.", metavar="OUT")],
) -> None:
    """Write tidy tables: runs.parquet, one row a run, and points.parquet, one row a measurement."""
    from hotswap.bench.comparable import check_together
    from hotswap.bench.exchange import export_results
    from hotswap.bench.store import BenchStore

    store = BenchStore.open(folder)
    results = store.results().values()
    check_together(results, str(folder))
    store.check_whole()
    for path in export_results(results, out_dir):
        out.print(str(path), highlight=False)
