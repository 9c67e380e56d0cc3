"""Put data, style and script into one file that needs nothing else."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["render_page"]


def render_page(data: dict[str, Any]) -> str:
    """The page as one string of HTML."""
    parts = files("hotswap.report.page")
    template, style, *scripts = (
        parts.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", "plot.js", "beyond.js", "page.js")
    )
    # No "<" in the data: whatever a study is called, it cannot end the script element or begin a comment.
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return template.replace("/*STYLE*/", style).replace("/*SCRIPT*/", "".join(scripts)).replace("/*DATA*/", text)
