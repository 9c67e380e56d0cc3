"""`hotswap demo`: a few minutes on a laptop."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hotswap._version import __version__
from hotswap.cli.console import err, make_folder, need, out, say

if TYPE_CHECKING:
    from hotswap.data import Dataset
    from hotswap.demo import Contender, DemoSettings, Outcome


def demo(
    epochs: Annotated[int, typer.Option(help="Passes over the training images, for each optimizer.", min=1)] = 10,
    batch_size: Annotated[int, typer.Option(help="Images per minibatch.", min=1)] = 64,
    seed: Annotated[int, typer.Option(help="Decides the weights and the order of the images.")] = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Where figure and table go.", metavar="DIR")] = Path("demo"),
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A folder with MNIST, if you have it already.", metavar="DIR", exists=True, file_okay=False
        ),
    ] = None,
) -> None:
    """Train the paper's network with HotSwapSGD, AdamW, AdaDelta and SGD at several rates, and compare.

    784-500-300-10 sigmoid units on the first 50,000 images of MNIST; the same weights and minibatches for everyone.
    About five minutes on two cores.
    """
    need("matplotlib", "The demo draws a figure")
    from hotswap.demo import DemoSettings, contenders, load_data
    from hotswap.demo.figure import draw, save
    from hotswap.files import write_text

    make_folder(out_dir)
    settings = DemoSettings(epochs=epochs, batch_size=batch_size, seed=seed)
    try:
        with out.status("Loading MNIST ..."):
            data = load_data(folder, say)
        out.print(f"[bold]{data.name}[/]: {data.features}-500-300-{data.classes}, batch size {batch_size}")
        outcomes = [_train(contender, data, settings) for contender in contenders(settings)]
    except KeyboardInterrupt:
        err.print("Stopped; no figure was written.")
        raise typer.Exit(130) from None
    rows = [_row(outcome) for outcome in outcomes]
    out.print(_table(rows, f"After {epochs} epoch{'s' if epochs > 1 else ''}"))
    save(draw(outcomes, f"{data.name}, batch size {batch_size}, seed {seed}"), out_dir / "hot-swapping.png")
    write_text(out_dir / "results.md", _markdown(rows, data, settings))
    out.print(f"The figure and the table are in [bold]{out_dir}[/]: hot-swapping.png, results.md")


def _train(contender: Contender, data: Dataset, settings: DemoSettings) -> Outcome:
    from hotswap.demo import steps_per_epoch, train

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}"),
    )
    steps = steps_per_epoch(data, settings)
    with Progress(*columns, console=out) as progress:
        task = progress.add_task(contender.name, total=steps * settings.epochs, now="")

        def on_step(_number: int, loss: float) -> None:
            progress.update(task, advance=1, now=f"loss {loss:.3f}")

        outcome = train(contender, data, settings, on_step)
        progress.update(task, now=f"test error {100 * outcome.test_errors[-1]:.2f} %")
    return outcome


HEADINGS = ("optimizer", "train loss", "test error", "seconds", "passes", "trials per step", "median rate")
NOTE = "Passes are forward and backward; trials are forward only."


def _row(outcome: Outcome) -> tuple[str, ...]:
    moved = sorted(rate for rate in outcome.rates if rate > 0)
    return (
        outcome.name,
        f"{outcome.train_losses[-1]:.4g}",
        f"{100 * outcome.test_errors[-1]:.2f} %",
        f"{outcome.seconds:.0f}",
        f"{outcome.passes:,}",
        f"{outcome.trials / len(outcome.rates):.2f}" if outcome.swaps else "",
        f"{moved[len(moved) // 2]:.3g}" if moved else "",
    )


def _table(rows: list[tuple[str, ...]], title: str) -> Table:
    table = Table(title=title, caption=NOTE, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for place, heading in enumerate(HEADINGS):
        broken = heading.replace(" ", "\n", 1)  # so that 80 columns hold the table
        table.add_column(broken, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row, style="bold" if row[-1] else None)
    return table


def _markdown(rows: list[tuple[str, ...]], data: Dataset, settings: DemoSettings) -> str:
    import torch

    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    ran = f"{data.name}, {settings.epochs} epochs, batch size {settings.batch_size}, seed {settings.seed}"
    on = f"torch {torch.__version__}, CPU with {torch.get_num_threads()} threads, {date.today()}"
    return f"{table}\n\n{NOTE}\n\n{ran}; hotswap {__version__}, {on}\n"
