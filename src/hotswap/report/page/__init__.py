"""The page: data, style and script in one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

__all__ = ["render_benchmark", "render_page"]


def render_page(data: Mapping[str, Any]) -> str:
    """The page of a study, as one string of HTML."""
    return _render(data, "study.html", ("beyond.js", "page.js"))


def render_benchmark(section: Mapping[str, Any] | None) -> str:
    """The page of a benchmark alone; None where nothing of it has ended."""
    data: dict[str, Any] = {"algorithms": {}, "epochs": [], "missing": [], "benchmark": section}
    return _render(data, "alone.html", ("alone.js",))


def _render(data: Mapping[str, Any], body: str, scripts: tuple[str, ...]) -> str:
    # No "<" in the data: whatever a study is called, it cannot end the script element or begin a comment.
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    text = text.encode("utf-8", "replace").decode("utf-8")  # half of a pair of code units cannot be written
    parts = {
        "<!--BODY-->": _read(body),
        "<!--BENCHMARK-->": _read("benchmark.html"),
        "/*STYLE*/": _read("page.css", "benchmark.css"),
        "/*SCRIPT*/": _read("plot.js", "answers.js", "benchmark.js", *scripts),
        "/*DATA*/": text,
    }
    page = _read("page.html")
    for place, part in parts.items():
        page = page.replace(place, part)
    return page


def _read(*names: str) -> str:
    folder = files("hotswap.report.page")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
