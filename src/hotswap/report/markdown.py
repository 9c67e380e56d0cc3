"""Text in Markdown: what comes from a file stays text, whatever is in it."""

from __future__ import annotations

import html
import re

from hotswap.names import one_line

__all__ = ["escaped", "quoted"]

_LAYOUT, _MARKS = re.compile(r"([|\[\]])"), re.compile(r"([\\`*])")


def escaped(text: str) -> str:
    """A sentence or cell of our own that may have words of others in it: one line without HTML, links and columns.

    Its code, in backticks, and its emphasis stay.
    """
    return _LAYOUT.sub(r"\\\1", html.escape(one_line(text), quote=False))


def quoted(text: str) -> str:
    """Words of others, such as the reason why a run failed: they read in Markdown as they were written."""
    return escaped(_MARKS.sub(r"\\\1", text))
