"""Put data, style and script into one file that needs nothing else."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["build_page"]


def build_page(data: dict[str, Any]) -> str:
    """The page as one string of HTML."""
    parts = files("hotswap.report.page")
    template, style, script = (
        parts.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    # "</" cannot end the script element early, whatever a study is called.
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    return template.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script).replace("/*DATA*/", text)
