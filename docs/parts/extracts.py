"""Text that is taken from elsewhere in the repository: the commands' own help, the notebook's cells, files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import typer.cli

from hotswap.cli import app

__all__ = ["commands", "notebook", "source"]

LANGUAGES = {".py": "python", ".sh": "bash"}


def commands() -> str:
    """Every command: usage, what it does, its arguments and options."""
    command = typer.main.get_command(app)
    text = typer.cli.get_docs_for_click(obj=command, ctx=typer.Context(command), name="hotswap", indent=1)
    text = text.replace("\\[", "[")  # which only rich needs
    return re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n|\* `--(install|show)-completion`.*\n", "", text)  # each follows


def notebook(path: Path) -> str:
    """A notebook's cells as Markdown, without its title."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"]).strip()
        code = cell["cell_type"] == "code"
        parts.append(f"```python\n{text}\n```" if code else re.sub(r"\A# .*\n?", "", text).strip())
    return "\n\n".join(part for part in parts if part)


def source(path: Path) -> str:
    """A file, to be read."""
    return f"```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8').strip()}\n```"
