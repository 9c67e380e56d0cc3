"""`hotswap demo`: a few minutes on a laptop."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hotswap._version import __version__
from hotswap.cli.console import err, make_folder, need, out, plain, say, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hotswap.bench.workloads import Task
    from hotswap.demo.training import Contender, Outcome

HEADINGS = ("optimizer", "rate", "train loss", "test error", "passes", "steps", "CPU seconds")
NOTE = "A pass is forward and backward; a trial of HotSwapSGD is forward only and counts a third of one."


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
    from hotswap.demo.figure import draw, save
    from hotswap.demo.training import PRODIGY_IS_MISSING, contenders, load_data, task_of
    from hotswap.demo.verdict import judge
    from hotswap.files import write_text

    make_folder(out_dir)
    try:
        with out.status("Loading MNIST ..."):
            data = load_data(folder, say)
        task = partial(task_of, data, epochs=epochs, batch_size=batch_size, seed=seed)
        passes = task().steps
        sizes = f"{data.features}-500-300-{data.classes}"
        out.print(f"[bold]{data.name}[/]: {sizes}, batch size {batch_size}, {passes:,} passes for each")
        racing = contenders()
        if all(contender.name != "Prodigy" for contender in racing):
            say(PRODIGY_IS_MISSING)
        outcomes = [_train(contender, task()) for contender in racing]
    except KeyboardInterrupt:
        err.print("Stopped; no figure was written.")
        raise typer.Exit(130) from None
    rows, verdict = [_row(outcome) for outcome in outcomes], str(judge(outcomes, len(data.test_labels)))
    broken = [heading.replace(" ", "\n", 1) for heading in HEADINGS]  # so that 80 columns hold the table
    show(f"After {passes:,} passes each", broken, rows, words=HEADINGS[:2], caption=NOTE)
    out.print(plain(verdict), highlight=False)
    title = f"No learning rate chosen, the same number of passes for all: {data.name.upper()}, batch size {batch_size}"
    save(draw(outcomes, title), out_dir / "demo.png")
    ran = f"{data.name}, {epochs} epochs, batch size {batch_size}, seed {seed}"
    write_text(out_dir / "results.md", _markdown(rows, verdict, outcomes, ran))
    out.print(f"The figure and the table are in [bold]{out_dir}[/]: demo.png, results.md")


def _train(contender: Contender, task: Task) -> Outcome:
    from hotswap.demo.training import train

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("passes"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=out) as progress:
        bar = progress.add_task(contender.name, total=task.steps, now="")

        def on_step(outcome: Outcome, loss: float) -> None:
            measured = f", test error {100 * outcome.end.error:.2f} %" if outcome.points else ""
            progress.update(bar, completed=min(task.steps, int(outcome.passes)), now=f"loss {loss:.3f}{measured}")

        outcome = train(contender, task, on_step)
        progress.update(bar, now=f"loss {outcome.end.loss:.3g}, test error {100 * outcome.end.error:.2f} %")
    if outcome.standings is not None:
        out.print(plain(f"\n{outcome.standings}\n"), highlight=False, soft_wrap=True)
    return outcome


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
    from hotswap.demo.training import Rate

    rates = sorted(outcome.rates)
    if outcome.rate is Rate.ESTIMATED or not rates:
        return outcome.rate.value
    return f"{rates[len(rates) // 2]:.3g} {outcome.rate.value}"


def _markdown(rows: Sequence[tuple[str, ...]], verdict: str, outcomes: Sequence[Outcome], ran: str) -> str:
    import torch

    lines = [HEADINGS, ("---", "---", *["---:"] * (len(HEADINGS) - 2)), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    standings = [f"The race's standings:\n\n```text\n{one.standings}\n```" for one in outcomes if one.standings]
    threads = torch.get_num_threads()
    on = f"torch {torch.__version__}, CPU with {threads} thread{'s' if threads > 1 else ''}, {date.today()}"
    return "\n\n".join([table, NOTE, verdict, *standings, f"{ran}; hotswap {__version__}, {on}\n"])
