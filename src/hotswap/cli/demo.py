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
from hotswap.cli.console import err, make_folder, need, out, plain, say

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
    """Race the default lanes on MNIST, beside AdamW, Prodigy and the paper's HotSwapSGD, and compare.

    784-500-300-10 sigmoid units on the first 50,000 images of MNIST; nobody chooses a learning rate. Everyone has the
    same first weights, the same minibatches and the same number of passes. Two to four minutes on two cores.
    """
    need("matplotlib", "The demo draws a figure")
    from hotswap.demo import PRODIGY_IS_MISSING, DemoSettings, budget, contenders, judge, load_data
    from hotswap.demo.figure import draw, save
    from hotswap.files import write_text

    make_folder(out_dir)
    settings = DemoSettings(epochs=epochs, batch_size=batch_size, seed=seed)
    try:
        with out.status("Loading MNIST ..."):
            data = load_data(folder, say)
        passes = budget(data, settings)
        sizes = f"{data.features}-500-300-{data.classes}"
        out.print(f"[bold]{data.name}[/]: {sizes}, batch size {batch_size}, {passes:,} passes for each")
        racing = contenders()
        if all(contender.name != "Prodigy" for contender in racing):
            say(PRODIGY_IS_MISSING)
        outcomes = [_train(contender, data, settings, passes) for contender in racing]
    except KeyboardInterrupt:
        err.print("Stopped; no figure was written.")
        raise typer.Exit(130) from None
    rows, verdict = [_row(outcome) for outcome in outcomes], str(judge(outcomes, len(data.test_labels)))
    out.print(_table(rows, f"After {passes:,} passes each"))
    out.print(plain(verdict), highlight=False)
    figure = draw(
        outcomes,
        f"No learning rate chosen, the same number of passes for all: {data.name.upper()}, batch size {batch_size}",
    )
    save(figure, out_dir / "demo.png")
    write_text(out_dir / "results.md", _markdown(rows, verdict, outcomes, data, settings))
    out.print(f"The figure and the table are in [bold]{out_dir}[/]: demo.png, results.md")


def _train(contender: Contender, data: Dataset, settings: DemoSettings, passes: int) -> Outcome:
    from hotswap.demo import train

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("passes"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=out) as progress:
        task = progress.add_task(contender.name, total=passes, now="")

        def on_step(outcome: Outcome, loss: float) -> None:
            measured = f", test error {100 * outcome.end.error:.2f} %" if outcome.points else ""
            progress.update(task, completed=min(passes, int(outcome.passes)), now=f"loss {loss:.3f}{measured}")

        outcome = train(contender, data, settings, on_step)
        progress.update(task, now=f"loss {outcome.end.loss:.3g}, test error {100 * outcome.end.error:.2f} %")
    if outcome.standings is not None:
        out.print(plain(f"\n{outcome.standings}\n"), highlight=False, soft_wrap=True)
    return outcome


HEADINGS = ("optimizer", "rate", "train loss", "test error", "passes", "steps", "CPU seconds")
NOTE = "A pass is forward and backward; a trial of HotSwapSGD is forward only and counts a third of one."


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.name,
        _rate(outcome),
        f"{outcome.end.loss:.3g}",
        f"{100 * outcome.end.error:.2f} %",
        f"{outcome.passes:,.0f}",
        f"{outcome.steps:,}",
        f"{outcome.seconds:.0f}",
    )


def _rate(outcome: Outcome) -> str:
    """The rate that was used, and who chose it."""
    from hotswap.demo import Rate

    rates = sorted(outcome.rates)
    if outcome.rate is Rate.ESTIMATED or not rates:
        return outcome.rate.value
    return f"{rates[len(rates) // 2]:.3g} {outcome.rate.value}"


def _table(rows: list[tuple[str, ...]], title: str) -> Table:
    table = Table(title=title, caption=NOTE, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for place, heading in enumerate(HEADINGS):
        broken = heading.replace(" ", "\n", 1)  # so that 80 columns hold the table
        table.add_column(broken, justify="right" if place > 1 else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _markdown(
    rows: list[tuple[str, ...]], verdict: str, outcomes: list[Outcome], data: Dataset, settings: DemoSettings
) -> str:
    import torch

    lines = [HEADINGS, ("---", "---", *["---:"] * (len(HEADINGS) - 2)), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    standings = [f"The race's standings:\n\n```text\n{one.standings}\n```" for one in outcomes if one.standings]
    ran = f"{data.name}, {settings.epochs} epochs, batch size {settings.batch_size}, seed {settings.seed}"
    threads = torch.get_num_threads()
    on = f"torch {torch.__version__}, CPU with {threads} thread{'s' if threads > 1 else ''}, {date.today()}"
    return "\n\n".join([table, NOTE, verdict, *standings, f"{ran}; hotswap {__version__}, {on}\n"])
