"""`hotswap demo`: three minutes on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hotswap.cli.console import err, need, out, say

if TYPE_CHECKING:
    from hotswap.data import Dataset
    from hotswap.demo import Contender, DemoSettings, Outcome


def demo(
    epochs: Annotated[int, typer.Option(help="Passes over the training images, for each optimizer.", min=1)] = 8,
    batch_size: Annotated[int, typer.Option(help="Images per minibatch.", min=1)] = 64,
    seed: Annotated[int, typer.Option(help="Decides the weights and the order of the images.")] = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Where the figure goes.", metavar="DIR")] = Path("demo"),
    folder: Annotated[
        Path | None, typer.Option("--from", help="A folder with MNIST, if you have it already.", metavar="DIR")
    ] = None,
) -> None:
    """Train the paper's network with HotSwapSGD, AdaDelta and SGD at several rates, and compare.

    784-500-300-10 sigmoid units on the first 50,000 images of MNIST; the same weights and minibatches for everyone.
    About three minutes on two cores.
    """
    need("matplotlib", "The demo draws a figure")
    from hotswap.demo import DemoSettings, contenders, load_data
    from hotswap.demo.figure import draw, save

    settings = DemoSettings(epochs=epochs, batch_size=batch_size, seed=seed)
    try:
        with out.status("Loading MNIST ..."):
            data = load_data(folder, say)
        out.print(f"[bold]{data.name}[/]: {data.features}-500-300-{data.classes}, batch size {batch_size}")
        outcomes = [_train(contender, data, settings) for contender in contenders(settings)]
    except KeyboardInterrupt:
        err.print("Stopped; no figure was written.")
        raise typer.Exit(130) from None
    _print_outcomes(outcomes)
    path = out_dir / "hot-swapping.png"
    save(draw(outcomes, f"{data.name}, batch size {batch_size}, seed {seed}"), path)
    out.print(f"The figure is in [bold]{path}[/].")


def _train(contender: Contender, data: Dataset, settings: DemoSettings) -> Outcome:
    from hotswap.demo import train

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}"),
    )
    steps = min(50_000, len(data.train_images)) // settings.batch_size
    with Progress(*columns, console=out) as progress:
        task = progress.add_task(contender.name, total=steps * settings.epochs, now="")

        def on_step(_number: int, loss: float) -> None:
            progress.update(task, advance=1, now=f"loss {loss:.3f}")

        outcome = train(contender, data, settings, on_step)
        progress.update(task, now=f"test error {100 * outcome.test_errors[-1]:.2f} %")
    return outcome


def _print_outcomes(outcomes: list[Outcome]) -> None:
    table = Table(title=f"After {len(outcomes[0].train_losses)} epochs")
    table.add_column("optimizer", no_wrap=True)
    for column in ("train loss", "test error", "seconds", "trials/step", "median rate"):
        table.add_column(column, justify="right", no_wrap=True)
    for outcome in outcomes:
        moved = sorted(rate for rate in outcome.rates if rate > 0)
        table.add_row(
            outcome.name,
            f"{outcome.train_losses[-1]:.4f}",
            f"{100 * outcome.test_errors[-1]:.2f} %",
            f"{outcome.seconds:.0f}",
            f"{outcome.trials / len(outcome.rates):.2f}" if outcome.swaps else "",
            f"{moved[len(moved) // 2]:.3g}" if moved else "",
            style="bold" if outcome.swaps else None,
        )
    out.print(table)
