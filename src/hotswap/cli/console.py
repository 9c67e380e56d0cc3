"""How the commands speak to a person."""

from __future__ import annotations

from importlib.util import find_spec

from rich.console import Console

from hotswap.errors import UnsupportedError

__all__ = ["err", "need", "out", "plain", "say"]

out = Console()
err = Console(stderr=True)


def plain(text: str) -> str:
    """Text that rich shows as it is: brackets are not markup."""
    return text.replace("[", r"\[")


def say(text: str) -> None:
    """Something on the side."""
    out.print(plain(text), style="dim", soft_wrap=True, highlight=False)


def need(package: str, why: str) -> None:
    """Stop with a sentence where an optional package is missing."""
    if find_spec(package) is None:
        raise UnsupportedError(f"{why}, and {package} is not installed; install it with: pip install 'hotswap[study]'")
