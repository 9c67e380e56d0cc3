"""What tests of pages in a browser say in common; `conftest.py` opens them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HOSTILE = "</script><b>x<!--<script>"
"""A name that is markup."""

Opened = Callable[..., Any]
"""Opens a page by name, for a width and height."""


def plain(text: str) -> str:
    """Text with ordinary spaces."""
    return text.replace("\u00a0", " ")
