"""How the commands speak to a person."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from hotswap.errors import SettingError, UnsupportedError

__all__ = ["err", "make_folder", "need", "out", "plain", "say"]

out = Console()
err = Console(stderr=True)


def plain(text: str) -> str:
    """Text that rich shows as it is: brackets are not markup."""
    return text.replace("[", r"\[")


def say(text: str) -> None:
    """Print a remark, dimmed: it is not what the command was asked for."""
    out.print(plain(text), style="dim", soft_wrap=True, highlight=False)


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
