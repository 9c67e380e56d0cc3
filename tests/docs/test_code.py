"""What the pages show can be run: Python, commands, the notebook."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from hotswap.cli import app
from hotswap.studies import load_study
from tests.docs.helpers import DOCS, PAGES, ROOT, fences, run

NOTEBOOK = ROOT / "examples" / "start.ipynb"
COMMAND = re.compile(r"(?<!`)`(hotswap [^`\n]*)`(?!`)")

RUN_PAGES = """
import json, sys, torch
for page, blocks in json.load(sys.stdin).items():
    torch.manual_seed(0)
    names = {"__name__": page}
    for number, text in enumerate(blocks, start=1):
        exec(compile(text, f"{page}, block {number}", "exec"), names)
"""

RUN_NOTEBOOK = f"""
import nbclient, nbformat
notebook = nbformat.read({str(NOTEBOOK)!r}, as_version=4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=60).execute()
shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
assert any("image/png" in output.get("data", {{}}) for output in shown), "no figure"
"""


def test_python_on_the_pages_runs(tmp_path: Any) -> None:
    """The blocks of a page are one program, from top to bottom; the notebook's page is the notebook's test."""
    blocks = {page.name: fences(page, "python") for page in PAGES if page.name != "notebook.md"}
    assert sum(map(len, blocks.values())) >= 8
    (tmp_path / "blocks.json").write_text(json.dumps(blocks), encoding="utf-8")
    program = RUN_PAGES.replace("json.load(sys.stdin)", f"json.load(open({str(tmp_path / 'blocks.json')!r}))")
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


def test_the_readmes_first_example_runs_when_it_is_pasted() -> None:
    done = run("-c", fences(ROOT / "README.md", "python")[0])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 3  # a line for each lane, below their heading
    assert "won" in done.stdout
    assert done.stdout.count("dropped at step") == 2


@pytest.mark.skipif(find_spec("nbclient") is None, reason="nbclient is not installed")
def test_the_notebook_runs_from_top_to_bottom() -> None:
    done = run("-c", RUN_NOTEBOOK)
    assert done.returncode == 0, done.stderr


def test_the_notebook_is_short_and_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert sum(len(cell["source"]) for cell in cells if cell["cell_type"] == "code") < 40
    for cell in cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_studies_on_the_pages_can_be_read(tmp_path: Path) -> None:
    """Those that need no file of one's own; the page on extending has a test of its own."""
    texts = fences(DOCS / "studies.md", "toml")
    assert texts
    for text in texts:
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        assert load_study(tmp_path / "study.toml").runs()


def test_commands_on_the_pages_exist() -> None:
    found = 0
    for page in PAGES:
        spans = COMMAND.findall(page.read_text(encoding="utf-8"))
        lines = [line for text in fences(page, "sh") for line in text.splitlines() if line.startswith("hotswap ")]
        for text in (*spans, *lines):
            found += 1
            check_command(text.split("#")[0].split(), f"{page.name}: {text}")
    assert found > 20


def check_command(words: list[str], where: str) -> None:
    """Follow the words down the tree of commands, then look for each option."""
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while rest and getattr(command, "commands", None):
        if rest[0].startswith("-"):  # an option of the group, before the command
            option = next((param for param in command.params if rest[0] in param.opts), None)
            assert option is not None or rest[0] == "--help", where
            rest = rest[1 if option is None or option.is_flag else 2 :]
        else:
            assert rest[0] in command.commands, where
            command, rest = command.commands[rest[0]], rest[1:]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
    for word in rest:
        assert not word.startswith("--") or word in known, where
