"""How the commands speak to a person."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table

from hotswap.errors import SettingError, UnsupportedError

__all__ = ["duration", "err", "make_folder", "need", "out", "plain", "say", "show", "warn"]

out = Console()
err = Console(stderr=True)


def plain(text: str) -> str:
    """Text that rich shows as it is: brackets are not markup."""
    return text.replace("[", r"\[")


def say(text: str) -> None:
    """Print a remark, dimmed: it is not what the command was asked for."""
    out.print(plain(text), style="dim", soft_wrap=True, highlight=False)


def warn(sentences: Iterable[str]) -> None:
    """Print sentences on what is wrong or missing."""
    for sentence in sentences:
        out.print(plain(sentence), style="yellow", soft_wrap=True, highlight=False)


def show(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Sequence[str] | None = None,
    narrow: Sequence[str] = (),
    caption: str | None = None,
) -> None:
    """Print a table.

    Args:
        title: The line above.
        headings: A heading for each column.
        rows: Their cells, in rich's markup.
        words: The headings of columns that hold words; the first one, if nothing is said. Other columns hold numbers.
        narrow: The headings of columns that may be broken into lines. Other columns are as wide as they must be.
        caption: The line below.
    """
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        wraps = heading in narrow
        justify: Literal["left", "right"] = "left" if heading in (words or headings[:1]) else "right"
        table.add_column(heading, justify=justify, no_wrap=not wraps, overflow="fold")
        table.columns[-1].min_width = 7 * wraps or None
    for row in rows:
        table.add_row(*row)
    out.print(table)


def duration(seconds: float | None) -> str:
    """As people say it; empty if it is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else (f"{minutes} min {rest:02} s" if minutes else f"{rest} s")


def make_folder(folder: Path) -> None:
    """Make the folder that results will go to, before the work that gives them."""
    if folder.is_file():
        raise SettingError(f"{folder} is a file; name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingError(f"{folder} cannot be written to ({error.strerror}); name another folder.") from None


def need(package: str, why: str, extra: str = "study") -> None:
    """Stop with a sentence where an optional package is missing."""
    if find_spec(package) is None:
        raise UnsupportedError(
            f"{why}, and {package} is not installed; install hotswap with its extra, as in pip install '.[{extra}]'."
        )
