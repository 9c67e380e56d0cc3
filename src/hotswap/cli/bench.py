"""`hotswap bench`: compare methods on the same workloads at the same cost."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from hotswap.cli.bench_clustered import run_bench_on_ray
from hotswap.cli.bench_watching import UNDER_WAY, BenchWatching
from hotswap.cli.clustered import Address, OnRay, PerUnitAmounts, Place, check_for_ray
from hotswap.cli.console import err, make_folder, need, out, plain, say
from hotswap.cli.signals import stopped_by_signals
from hotswap.errors import SettingError

if TYPE_CHECKING:
    from hotswap.bench.running import BenchOptions
    from hotswap.bench.runs import Result, Run

app = typer.Typer(
    help="Compare methods that need no tuning, on the same workloads at the same cost; stop and go on at any time.",
    no_args_is_help=True,
)


class SizeName(StrEnum):
    """How large workloads are."""

    SMOKE = "smoke"
    FULL = "full"


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
    from hotswap.bench.workloads import WORKLOADS

    table = Table(title="Workloads", box=box.SIMPLE_HEAD)
    for heading in ("name", "what it is", "measured", "wants"):
        table.add_column(heading, no_wrap=heading == "name")
    for name, workload in sorted(WORKLOADS.items()):
        table.add_row(name, workload.title, workload.measured, "a GPU" if workload.wants_gpu else "")
    out.print(table)
    table = Table(title="Methods", box=box.SIMPLE_HEAD)
    for heading in ("name", "what it is", "configuration, and who recommends it", "here"):
        table.add_column(heading, no_wrap=heading == "name")
    for name, method in METHODS.items():
        package = " ".join(method.package) if method.package else ""
        title = f"{method.title} ({package})" if package else method.title
        table.add_row(name, plain(title), plain(method.first.source), plain(method.missing() or "yes"))
    out.print(table)


@app.command()
def run(
    context: typer.Context,
    out_dir: Annotated[Path, typer.Option("--out", help="The benchmark's folder; made if need be.", metavar="DIR")],
    workload: WorkloadNames = None,
    method: MethodNames = None,
    size: Annotated[SizeName, typer.Option(help="Small for a look, or as the benchmark is.")] = SizeName.FULL,
    device: Device = "cpu",
    jobs: Annotated[int, typer.Option(help="Processes that train side by side.", min=1)] = 1,
    stop_after: Annotated[
        float | None, typer.Option(help="Begin no run after so many minutes.", metavar="MINUTES")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Train again what has raised an error, too.")
    ] = False,
    on: Annotated[
        Place, typer.Option(help="In processes here, or many at once on ray: this machine's, or a cluster's.")
    ] = Place.HERE,
    address: Address = None,
    per_unit: PerUnitAmounts = None,
) -> None:
    """Train what is not there yet, or go on with it.

    Give the same command again after an interruption: what has ended is kept, and a run that was under way begins anew.
    A method that diverges or fails, and one whose package is missing, has a row that says so. The tuned reference is
    chosen when its search is complete, and is trained then; so is the second configuration of a method that fails.
    Several processes may work on one folder.

    With `--on ray`, each run is a unit, that is a task of a Ray cluster, and this command, the only one that writes to
    the folder, writes down what comes of them. A run whose node or process dies begins anew elsewhere; one whose
    process has died three times has a row that says so.
    """
    from hotswap.bench.running import run_bench
    from hotswap.bench.store import BenchStore
    from hotswap.bench.workers import Workers
    from hotswap.studies.running.train import device_named

    def options(on_device: str) -> BenchOptions:
        return _options(workload, method, on_device, size, retry_failed=retry_failed, stop_after=stop_after)

    try:
        if on is Place.RAY:
            if jobs > 1:
                raise SettingError("--jobs is for processes on this machine; on ray, say what a run has by --per-unit.")
            complete, signals = run_bench_on_ray(out_dir, size.value, device, options, OnRay(address, per_unit or ()))
        else:
            check_for_ray({"--address": address, "--per-unit": per_unit}, "benchmarks")
            chosen = options(device)
            device_named(device)
            make_folder(out_dir)
            with (
                BenchStore.create(out_dir, size.value) as store,
                BenchWatching() as watching,
                stopped_by_signals(watching.say, UNDER_WAY) as signals,
                Workers(jobs, device, context.obj or ()) as workers,
            ):
                complete = run_bench(store, chosen, workers, watching, lambda: bool(signals))
    except KeyboardInterrupt:
        err.print("Stopped. Run the same command again to go on; the runs under way begin anew.")
        raise typer.Exit(130) from None
    if signals:
        err.print("Stopped. Run the same command again to go on.")
        raise typer.Exit(128 + signals[0])
    if complete:
        out.print(f"All of it has ended. Next: hotswap bench report {out_dir} --out FOLDER")
    else:
        out.print(f"Not everything has ended. See: hotswap bench status {out_dir}")


def _options(
    workloads: list[str] | None,
    methods: list[str] | None,
    device: str,
    size: SizeName,
    *,
    retry_failed: bool = False,
    stop_after: float | None = None,
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
        if len(fitting) < len(WORKLOADS):
            say(f"On {device}: {', '.join(fitting)}. Name others with --workload.")
        workloads = fitting
    return BenchOptions(
        workloads=list(dict.fromkeys(workloads)),
        methods=list(dict.fromkeys(methods or METHODS)),
        retry_failed=retry_failed,
        stop_after=stop_after,
    )


@app.command()
def status(folder: BenchFolder, workload: WorkloadNames = None, method: MethodNames = None) -> None:
    """Show what has ended and how, what is running and what is left, by workload and method."""
    from hotswap.bench.methods import METHODS
    from hotswap.bench.plan import wanted
    from hotswap.bench.runs import STATES, troubles
    from hotswap.bench.store import BenchStore
    from hotswap.bench.workloads import WORKLOADS

    for name in workload or ():
        WORKLOADS.find(name, "--workload")
    for name in method or ():
        METHODS.find(name, "--method")
    with BenchStore.open(folder) as store:
        results = store.results()
        runs = wanted(workload or sorted(WORKLOADS), method or list(METHODS), store.size, results)
        where = {run.id: place for run in runs if (place := store.running(run)) is not None}
        states = {run.id: _state(run, results, running=run.id in where) for run in runs}
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in runs:
        counts.setdefault((one.workload, one.method), Counter())[states[one.id]] += 1
    table = Table(title=f"Runs, size {store.size}", box=box.SIMPLE_HEAD, pad_edge=False)
    names = [state for state in (*STATES, "running", "left") if state in states.values()]
    for heading in ("workload", "method", *names):
        table.add_column(heading, justify="right" if heading in names else "left", no_wrap=True)
    for (one_workload, one_method), found in counts.items():
        table.add_row(one_workload, one_method, *(str(found[name] or "") for name in names))
    out.print(table)
    for run_id, place in where.items():
        out.print(f"{run_id}: running ({place})", highlight=False, markup=False, soft_wrap=True)
    for sentence in troubles(results.values()):
        out.print(sentence, highlight=False, markup=False, soft_wrap=True)
    ended = sum(state not in ("running", "left") for state in states.values())
    seconds = sum(result.points[-1].seconds for result in results.values() if result.points)
    out.print(f"{ended} of {len(runs)} runs that are known so far have ended; trained for {seconds / 60:.1f} min.")


@app.command()
def report(
    folder: BenchFolder,
    out_dir: Annotated[Path, typer.Option("--out", help="Where the report goes.", metavar="DIR")] = Path("report"),
) -> None:
    """Write a page, tables and figures: benchmark.html, benchmark.md, the curves of each workload, the profile.

    The page is one file that works offline: curves to point at, scores to sort, who is ahead of whom and where.
    Of a benchmark that is not finished, what there is.
    """
    need("matplotlib", "Reports draw figures")
    need("pandas", "Reports write tables")
    from hotswap.bench.report import write_report
    from hotswap.bench.scores import overall, scores, too_easy
    from hotswap.bench.store import BenchStore

    with BenchStore.open(folder) as store:
        results = store.results()
    with out.status("Drawing ...") as progress:
        written = write_report(results, out_dir, lambda name: progress.update(f"Wrote {name} ..."))
    found = scores(results)
    if rows := overall(found):
        table = Table(title="Over all workloads; 1 is as good as tuned", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("method", "workloads", "geometric mean", "worst", "misses", "failed on"):
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for row in rows:
            counts = (str(len(row.misses)), str(len(row.failures)))
            table.add_row(row.method, str(row.workloads), f"{row.mean:.3g}", f"{row.worst:.3g}", *counts)
        out.print(table)
    for name in too_easy(found):
        out.print(
            f"Too easy: AdamW's default reaches the reference of {name} in a tenth of the budget.", style="yellow"
        )
    out.print(f"Wrote {len(written)} files. Open [bold]{plain(str(written[0]))}[/].")


@app.command()
def export(
    folder: BenchFolder,
    out_dir: Annotated[Path, typer.Argument(help="A folder for the tables.", metavar="OUT")],
) -> None:
    """Write tidy tables: runs.parquet, one row a run, and points.parquet, one row a measurement."""
    need("pandas", "Exporting writes tables")
    from hotswap.bench.exchange import export_results
    from hotswap.bench.store import BenchStore

    with BenchStore.open(folder) as store:
        for path in export_results(store, out_dir):
            out.print(str(path), highlight=False)


@app.command("import")
def import_(
    folder: BenchFolder,
    tables: Annotated[list[Path], typer.Argument(help="Exported folders.", metavar="OUT...")],
    size: Annotated[SizeName, typer.Option(help="Of a benchmark that is not there yet.")] = SizeName.FULL,
) -> None:
    """Put exported tables into a benchmark; what contradicts it is refused, and nothing is changed then."""
    need("pandas", "Importing reads tables")
    from hotswap.bench.exchange import import_results, read_results
    from hotswap.bench.store import BenchStore
    from hotswap.studies.storage.store import LEDGER

    for table in tables:
        read_results(table)  # before there is a folder
    there = (folder / LEDGER).is_file()
    with BenchStore.open(folder) if there else BenchStore.create(folder, size.value) as store:
        added = import_results(store, tables)
    out.print(f"{added} runs are new in {folder}.")


def _state(run: Run, results: dict[str, Result], *, running: bool) -> str:
    if running:
        return "running"
    return results[run.id].state if run.id in results else "left"
