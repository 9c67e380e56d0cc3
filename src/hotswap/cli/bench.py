"""`hotswap bench`: compare methods on the same workloads at the same cost."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from hotswap.cli.bench_watching import BenchWatching
from hotswap.cli.console import err, make_folder, need, out, plain, say
from hotswap.cli.places import Address, Jobs, On, PerUnitAmounts, Place, place_of
from hotswap.cli.signals import stopped_by_signals
from hotswap.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hotswap.bench.methods import Configuration
    from hotswap.bench.running import BenchOptions
    from hotswap.bench.runs import Result
    from hotswap.bench.workloads import Size

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
    list[str] | None,
    typer.Option(
        "--workload",
        help="Only this workload; repeat for more. Without it, those of full size that suit the device.",
        metavar="NAME",
    ),
]
MethodNames = Annotated[
    list[str] | None, typer.Option("--method", help="Only this method; repeat for more.", metavar="NAME")
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@app.command("list")
def list_() -> None:
    """List the workloads and the methods, with the configuration that each method has everywhere."""
    from hotswap.bench.methods import METHODS
    from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
    from hotswap.bench.workloads import WORKLOADS

    table = Table(title="Workloads", box=box.SIMPLE_HEAD)
    for heading in ("name", "what it is", "measured", "wants"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, workload in sorted(WORKLOADS.items()):
        table.add_row(name, workload.title, workload.measured, "a GPU" if workload.wants_gpu else "")
    out.print(table)
    table = Table(title="Methods", box=box.SIMPLE_HEAD)
    for heading in ("name", "what it is", "configuration, and who recommends it", "here"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, method in METHODS.items():
        package = " ".join(method.package) if method.package else ""
        title = f"{method.title} ({package})" if package else method.title
        told = f"the best of {len(SEARCHED)} by validation" if name == REFERENCE else _configured(method.first)
        table.add_row(name, *map(plain, (title, told, method.missing() or "yes")))
        if method.second is not None:
            kind = f", with {method.second.kind}" if method.second.kind else ""
            table.add_row("", "", plain(f"where that fails{kind}: {_configured(method.second)}"), "")
    out.print(table)


def _configured(configuration: Configuration) -> str:
    from hotswap.bench.report.methods import settings_text

    return f"{settings_text(configuration.settings)} ({configuration.source})"


@app.command()
def run(
    out_dir: Annotated[Path, typer.Option("--out", help="The benchmark's folder; made if need be.", metavar="DIR")],
    workload: WorkloadNames = None,
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
    from hotswap.bench.running import load_datasets, run_bench
    from hotswap.bench.store import BenchStore

    ray_options = {"--address": address, "--per-unit": per_unit}
    _options(workload, method, device, size, quiet=True)  # what is misspelt is said before a cluster is asked
    killed = lambda result: result is not None and result.state == "killed"  # noqa: E731  # a GPU that failed stays so
    with place_of(on, device, jobs, ray_options, always=True, is_spent=killed) as where:
        chosen = _options(workload, method, where.device, size, retry_failed=retry_failed, stop_after=stop_after)
        make_folder(out_dir)
        store = BenchStore.create(out_dir, size.value)
        check_before_running(store, chosen, where.device)
        data = load_datasets(chosen.workloads, size.value, say) if on is Place.RAY else {}
        try:
            with BenchWatching() as watching, stopped_by_signals(watching.say, "the next measurements") as signals:
                complete = run_bench(
                    store,
                    chosen,
                    where.device,
                    watching,
                    lambda: bool(signals),
                    elsewhere=where.elsewhere,
                    threads=where.threads,
                    data=data,
                )
        except KeyboardInterrupt:
            err.print("Stopped. Run the same command again to go on; the runs under way begin anew.")
            raise typer.Exit(130) from None
    if signals:
        err.print("Stopped. Run the same command again to go on; the runs under way begin anew.")
        raise typer.Exit(128 + signals[0])
    told, settled = _outcome(store.results(), chosen, store.size)
    if complete and settled:
        out.print(f"All of it has ended: {told}. Next: hotswap bench report {out_dir} --out FOLDER", soft_wrap=True)
    else:
        out.print(f"Not everything has ended: {told}. See: hotswap bench status {out_dir}", soft_wrap=True)


def _outcome(results: Mapping[str, Result], options: BenchOptions, size: Size) -> tuple[str, bool]:
    """A sentence on the runs that a command was asked for, with the next step; and whether all of them have ended."""
    from hotswap.bench.plan import wanted
    from hotswap.bench.runs import SETTLED, STATES

    runs = wanted(options.workloads, options.methods, size, results)
    counts: Counter[str] = Counter(results[run.id].state for run in runs if run.id in results)
    hints = {"failed": "--retry-failed tries them again", "missing": AGAIN, "killed": AGAIN}
    counts["left"] = len(runs) - counts.total()
    told = [
        f"{counts[state]} {state}{f' ({hints[state]})' if state in hints else ''}"
        for state in (*STATES, "left")
        if counts[state]
    ]
    settled = sum(counts[state] for state in SETTLED) == len(runs)
    return ", ".join(told) or "nothing was asked for", settled


def _options(
    workloads: list[str] | None,
    methods: list[str] | None,
    device: str,
    size: SizeName,
    *,
    retry_failed: bool = False,
    stop_after: float | None = None,
    quiet: bool = False,
) -> BenchOptions:
    from hotswap.bench.methods import METHODS
    from hotswap.bench.running import BenchOptions
    from hotswap.bench.workloads import WORKLOADS

    for name in workloads or ():
        WORKLOADS.find(name, "--workload")
    for name in methods or ():
        METHODS.find(name, "--method")
    if stop_after is not None and not stop_after > 0:
        raise SettingError(f"--stop-after {stop_after:g}: give a number of minutes above 0.")
    if not workloads:
        gpu = device.startswith("cuda")
        fitting = [name for name, one in WORKLOADS.items() if size == SizeName.SMOKE or one.wants_gpu == gpu]
        if len(fitting) < len(WORKLOADS) and not quiet:
            say(f"On {device}: {', '.join(fitting)}. Name others with --workload.")
        workloads = fitting
    elif (
        not quiet
        and device == "cpu"
        and size == SizeName.FULL
        and (large := [n for n in workloads if WORKLOADS[n].wants_gpu])
    ):
        say(f"Meant for a GPU, and slow without one, many minutes a run: {', '.join(large)}.")
    return BenchOptions(
        workloads=list(dict.fromkeys(workloads)),
        methods=list(dict.fromkeys(methods or METHODS)),
        retry_failed=retry_failed,
        stop_after=stop_after,
    )


@app.command()
def status(
    folder: BenchFolder,
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="Only this workload; repeat for more.", metavar="NAME")
    ] = None,
    method: MethodNames = None,
) -> None:
    """Show what has ended and how, what is running and what is left, by workload and method.

    Without names, of the workloads and methods that have begun.
    """
    from hotswap.cli.bench_status import show_status

    show_status(folder, workload, method)


@app.command()
def report(
    folder: BenchFolder,
    out_dir: Annotated[Path, typer.Option("--out", help="Where the report goes.", metavar="DIR")] = Path("report"),
) -> None:
    """Write a page, tables and figures: benchmark.html, benchmark.md, the curves of each workload, the profile.

    The page is one file that works offline: curves to point at, scores to sort, who is ahead of whom and where.
    Of a benchmark that is not finished, what there is. DIR may also be a folder that `hotswap bench export` wrote.
    """
    from hotswap.bench.report import write_report
    from hotswap.bench.report.methods import three_digits
    from hotswap.bench.report.text import cautions, coverage
    from hotswap.bench.scores import overall, scores

    results = _results(folder)
    with out.status("Drawing ...") as progress:
        written = write_report(results, out_dir, lambda name: progress.update(f"Wrote {name} ..."))
    found = scores(results)
    if rows := overall(found):
        table = Table(title="Over all workloads; 1 is as good as tuned", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("method", "workloads", "geometric mean", "worst", "misses", "diverged or failed on"):
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for row in rows:
            counts = (str(len(row.misses)), str(len(row.failures)))
            table.add_row(row.method, str(row.workloads), three_digits(row.mean), three_digits(row.worst), *counts)
        out.print(table)
    covered = coverage(results, found)
    lacking = covered if not rows or len(covered) > 1 else []  # more than that all workloads are there
    for sentence in [*lacking, *cautions(results, found)]:
        out.print(plain(sentence.replace("`", "")), style="yellow")
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
    check_together(store.results().values(), str(folder))
    store.check_whole()
    for path in export_results(store, out_dir):
        out.print(str(path), highlight=False)


def _results(folder: Path) -> Mapping[str, Result]:
    """The result of every run, from a benchmark's folder or from exported tables."""
    from hotswap.bench.comparable import check_together
    from hotswap.bench.store import BenchStore

    store = BenchStore.open(folder)
    results = store.results()
    check_together(results.values(), str(folder))
    for sentence in store.damaged:
        out.print(plain(sentence), style="yellow", soft_wrap=True)
    return results
