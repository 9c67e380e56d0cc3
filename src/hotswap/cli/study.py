"""`hotswap study`: run, watch and export studies."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hotswap.cli.console import duration, err, make_folder, need, out, plain, say, show, warn
from hotswap.cli.training import Address, Device, Jobs, On, PerUnitAmounts, Place, Watching, place_of, watched
from hotswap.errors import SettingError
from hotswap.files import write_text
from hotswap.studies import STUDIES

if TYPE_CHECKING:
    from hotswap.studies import StudySpec

app = typer.Typer(help="Train many runs as one tensor program; stop and go on at any time.", no_args_is_help=True)


class PrecisionName(StrEnum):
    """How matrix products are computed."""

    FP32 = "fp32"
    TF32 = "tf32"


KNOWN = ", ".join(f"`{name}`" for name in STUDIES)

AlgorithmNames = Annotated[
    list[str] | None, typer.Option(help="Only this algorithm of the study; repeat for more.", metavar="NAME")
]
StudyFolder = Annotated[Path, typer.Argument(help="The study's folder.", metavar="DIR")]


@app.command()
def run(
    study: Annotated[str, typer.Argument(help=f"{KNOWN}, or a TOML file; `hotswap study new` writes an example.")],
    out_dir: Annotated[Path, typer.Option("--out", help="The study's folder; made if need be.", metavar="DIR")],
    device: Device = "cpu",
    precision: Annotated[PrecisionName, typer.Option(help="Of matrix products on a GPU.")] = PrecisionName.FP32,
    epochs: Annotated[int | None, typer.Option(help="Fewer epochs than the study's.", min=1)] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="Only this batch size; repeat for more.")] = None,
    algorithm: AlgorithmNames = None,
    seeds: Annotated[int | None, typer.Option(help="Only the first so many seeds.", min=1)] = None,
    stop_after: Annotated[
        float | None, typer.Option(help="Stop at a checkpoint after so many minutes.", metavar="MINUTES")
    ] = None,
    max_runs: Annotated[int | None, typer.Option(help="Most runs trained together; for little memory.", min=1)] = None,
    folder: Annotated[Path | None, typer.Option("--from", help="A folder with the data.", metavar="DIR")] = None,
    jobs: Jobs = 1,
    on: On = Place.HERE,
    address: Address = None,
    per_unit: PerUnitAmounts = None,
    storage: Annotated[
        Path | None,
        typer.Option(
            help="A folder that all nodes see, for checkpoints of workers on ray that do not see DIR.", metavar="FOLDER"
        ),
    ] = None,
) -> None:
    """Train a study, or go on with one.

    Run the same command again after an interruption: finished units are skipped, the others go on from their last
    checkpoint. Several processes may work on one folder, and `--jobs` starts some.

    With `--on ray`, units are tasks of a Ray cluster. A unit whose process or node dies is trained again elsewhere,
    from its last checkpoint where that can be seen. A unit that fails is reported, and the command ends with code 1
    after the others.
    """
    need("safetensors", "Checkpoints are written as safetensors files")
    from hotswap.data import load
    from hotswap.studies.folder import Store
    from hotswap.studies.run import run_study
    from hotswap.studies.training import RunOptions

    spec = _study(study).select(
        algorithms=algorithm or None, batch_sizes=batch_size or None, seeds=seeds, epochs=epochs
    )
    ray_options = {"--address": address, "--per-unit": per_unit, "--storage": storage}
    with place_of(on, device, jobs, ray_options) as where:
        make_folder(out_dir)
        with out.status(f"Loading {spec.dataset} ..."):
            data = load(spec.dataset, folder=folder, report=say)
        options = RunOptions(device=where.device, precision=precision.value, stop_after=stop_after, max_runs=max_runs)
        store = Store.create(out_dir, spec, precision=precision.value, max_runs=max_runs)
        watching = Watching()
        with watched(watching, "this epoch", " from the last checkpoint") as stopping:
            outcome = run_study(
                store,
                spec,
                data,
                options,
                watching,
                stopping,
                elsewhere=where.elsewhere,
                threads=where.threads,
                storage=storage,
            )
            for unit, why in outcome.failed.items():
                err.print(f"[bold red]{unit} failed:[/] {plain(why)}", soft_wrap=True)
    if outcome.failed:
        raise typer.Exit(1)
    if outcome.left:
        out.print(f"Not everything is finished. See: hotswap study status {out_dir}")
    else:
        finished = "The run is" if len(spec.runs()) == 1 else f"All {len(spec.runs())} runs are"
        out.print(f"{finished} finished. Next: hotswap study export {out_dir} FILE.parquet")


@app.command()
def status(folder: StudyFolder) -> None:
    """Show what is done, running, kept and left, with an estimate of the time."""
    from hotswap.studies.folder import Store

    summary = Store.open(folder).summary()
    rows = []
    for unit in summary.units:
        state = f"running ({unit.where})" if unit.state == "running" else unit.state
        epochs, kept = f"{unit.epochs_done}/{unit.epochs}", "" if unit.state == "done" else str(unit.kept)
        times = (duration(unit.seconds), duration(unit.seconds_left))
        rows.append((unit.id, str(unit.runs), epochs, kept, state, str(unit.diverged or ""), *times))
    headings = ("unit", "runs", "epochs", "kept", "state", "diverged", "spent", "left")
    title, broken = f"{summary.name}, {summary.precision}", ("state", "spent", "left")  # in a narrow terminal
    show(title, headings, rows, words=("unit", "state"), narrow=broken)
    warn(summary.damaged)
    done = sum(unit.state == "done" for unit in summary.units)
    known = summary.seconds_left is not None
    left = f"about {duration(summary.seconds_left)}" if known else "not known before the first epochs"
    out.print(f"{done} of {len(summary.units)} units done; spent: {duration(summary.seconds)}, left: {left}")
    if any(unit.state != "done" and unit.kept < unit.epochs_done for unit in summary.units):
        out.print("A unit that is stopped goes on from the epochs that are kept; those after them are trained again.")


@app.command()
def timing(
    folder: StudyFolder,
    device: Device = "cpu",
    data_folder: Annotated[Path | None, typer.Option("--from", help="A folder with the data.", metavar="DIR")] = None,
    curves: Annotated[bool, typer.Option(help="Also train the single runs of Figure 2.")] = True,
) -> None:
    """Time single runs of a finished study, one at a time: the paper's Tables 1 and 2, and the runs of its Figure 2.

    DUCB, like any algorithm that chooses among learning rates, starts from the weights that the study kept at a fifth,
    three fifths and the end of its epochs, so this belongs on the machine that ran it. The tables, timing.parquet and
    curves.parquet, lie in the study's folder afterwards; `hotswap study export DIR FOLDER` takes them along.
    """
    need("pandas", "Timing writes tables")
    from hotswap.data import load
    from hotswap.studies.folder import Store
    from hotswap.studies.timing import single_runs, time_minibatches, write_curves, write_timings
    from hotswap.studies.training import RunOptions

    store = Store.open(folder)
    options = RunOptions(device=device, precision=store.precision)  # type: ignore[arg-type]  # the folder's own
    data = load(store.study.dataset, folder=data_folder, report=say)
    with out.status("Timing ..."):
        rows = list(time_minibatches(store, data, options))
    cells = [
        (
            row.algorithm,
            str(row.batch_size),
            str(row.epoch or ""),
            f"{row.milliseconds:.3f}",
            f"{row.seconds:.2f}",
            f"{row.trials:.2f}" if row.trials else "",
        )
        for row in rows
    ]
    show("Single runs", ("algorithm", "batch", "from epoch", "ms per minibatch", "s per epoch", "trials"), cells)
    write_timings(rows, store)
    if curves:
        with Watching() as watching:
            frame = single_runs(store, data, options, watching)
        write_curves(store, frame)
    out.print(f"The tables are in [bold]{folder}[/].")


@app.command()
def tuning(
    folder: Annotated[Path, typer.Argument(help="A study's folder, or one that was exported.", metavar="DIR")],
    searches: Annotated[int, typer.Option(help="How many, from different first settings.", min=1)] = 100,
) -> None:
    """Ask how many trainings a Bayesian search would have taken: for the price of tuning in the report.

    Nothing is trained. The study has trained all settings of an algorithm, such as SGD's 360 in the paper's study, so a
    search looks up what each came to, until it has the best of them. The searches are in tuning.json in the folder
    afterwards, where `hotswap report DIR` finds them. Stop at any time: another call goes on, and with more --searches
    adds to those that are there.
    """
    need("pandas", "Searching reads tables")
    need("sklearn", "A Bayesian search fits Gaussian processes")
    from hotswap.report.bayesian import FILE, search_on
    from hotswap.report.results import load_results

    if not folder.is_dir():
        raise SettingError(f"{folder} is not a folder; name a study's, or one that `hotswap study export` wrote.")
    results = load_results(folder, searched=False)
    spaces = results.spaces()
    if results.unfinished is not None or not spaces:
        why = results.unfinished or "it has no algorithm with settings to search beside one that chooses its rate"
        raise SettingError(f"The settings of {folder} cannot be searched: {why}; name a study that can be.")
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal) as progress:
        tasks = {measure: progress.add_task(measure, total=searches) for measure in spaces}
        found = search_on(
            folder,
            spaces,
            searches,
            f"hotswap study tuning {folder.name} --searches {searches}",
            lambda measure, number: progress.update(tasks[measure], completed=number),
        )
    counts = ", ".join(f"{len(orders)} by {measure}" for measure, orders in found.items())
    out.print(f"{counts}: [bold]{folder / FILE}[/]. Look at them with: hotswap report {folder}", soft_wrap=True)


@app.command()
def new(path: Annotated[Path, typer.Argument(help="The file to write.", metavar="FILE")] = Path("study.toml")) -> None:
    """Write a commented example of a study of your own."""
    from hotswap.studies.toml import example

    if path.exists():
        raise SettingError(f"{path} is there already; name another file.")
    write_text(path, example())  # made now: `--load` may have added to it
    out.print(f"Wrote [bold]{path}[/]. Edit it, then: hotswap study run {path} --out DIR")


@app.command()
def export(
    folder: StudyFolder,
    file: Annotated[
        Path, typer.Argument(help="A .parquet or .csv file, or a folder for all there is.", metavar="FILE")
    ],
) -> None:
    """Write a tidy table, one row per run and recorded epoch, and beside it the arms taken and the provenance.

    With a folder's name (no ending) it gets everything that is known of the study, timings of single runs included:
    what `hotswap report` reads.
    """
    need("pandas", "Exporting writes tables")
    from hotswap.studies.export import export as write
    from hotswap.studies.folder import Store

    for path in write(Store.open(folder), file):
        out.print(str(path), highlight=False)


def _study(name: str) -> StudySpec:
    from hotswap.studies import load_study

    if name in STUDIES:
        return STUDIES[name]
    if not Path(name).exists():
        raise SettingError(
            f"There is no study {name!r}: name one of {KNOWN}, or a TOML file (`hotswap study new` writes one)."
        )
    return load_study(Path(name))
