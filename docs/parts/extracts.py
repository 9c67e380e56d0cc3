"""Text that is taken from elsewhere in the repository: the commands' own help, the notebook's cells, examples."""

from __future__ import annotations

import json
import re
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from hotswap.cli import app

__all__ = ["commands", "notebook", "source"]

SHELL_OPTIONS = {"--install-completion", "--show-completion"}


def commands() -> str:
    """Every command: usage, what it does, its arguments and options."""
    return "\n\n".join(_described("hotswap", typer.main.get_command(app)))


def _described(name: str, command: Any) -> list[str]:
    below = getattr(command, "commands", {})
    params = [p for p in command.params if not SHELL_OPTIONS & set(p.opts)]
    parts = [f"{'##' if name.count(' ') == 0 else '###'} {name}", _paragraphs(command.help or "")]
    if below:
        parts.append("\n".join(f"- `{name} {key}`: {_first_line(sub.help or '')}" for key, sub in below.items()))
    else:
        parts.insert(1, f"```text\n{' '.join([name, *(_usage(p) for p in params if _usage(p)), '[OPTIONS]'])}\n```")
    if params:
        rows = [f"| {_names(p)} | {_note(p)} |" for p in params]
        parts.append("\n".join(["| argument or option | |", "|---|---|", *rows]))
    for key, sub in below.items():
        parts += _described(f"{name} {key}", sub)
    return parts


def _paragraphs(text: str) -> str:
    """Help as Markdown: lines belong together until an empty one."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _first_line(text: str) -> str:
    return _paragraphs(text).split("\n\n", maxsplit=1)[0]


def _usage(param: Any) -> str:
    """What must be typed, and arguments that may be."""
    shown = str(param.metavar or param.opts[0].upper())
    if param.param_type_name == "argument":
        return shown if param.required else f"[{shown}]"
    return f"{param.opts[0]} {shown}" if param.required else ""


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{param.metavar or param.opts[0].upper()}`"
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    return f"{names} `{param.metavar}`" if param.metavar else names


def _note(param: Any) -> str:
    note = str(param.help or "").replace("|", "\\|")
    default = param.default.value if isinstance(param.default, Enum) else param.default
    if param.required:
        return f"{note} Required." if param.param_type_name != "argument" else note
    return note if default is None or isinstance(default, bool) else f"{note} Default: `{default}`."


def notebook(path: Path) -> str:
    """A notebook's cells as Markdown, without its title."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"]).strip()
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{text}\n```")
        else:
            parts.append(re.sub(r"\A# .*\n?", "", text).strip())
    return "\n\n".join(part for part in parts if part)


def source(path: Path) -> str:
    """A Python file, to be read."""
    return f"```python\n{path.read_text(encoding='utf-8').strip()}\n```"
