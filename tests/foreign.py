"""Names as nobody should have them, and a look at what a command does with a file that has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.errors import HotSwapError

STRANGE = {
    "another folder": "x/../../PWNED",
    "the folder above": "..",
    "the folder itself": ".",
    "an absolute path": "/tmp/PWNED",
    "NUL": "sgd\0.png",
    "two lines": "sgd\n# A heading",
    "HTML": "<img src=x onerror=alert(1)>",
    "too long": "a" * 300,
    "a column": "a|b",
    "code": "`a`",
    "colours": "[red]a[/red]",
    "an escape": "\x1b[31ma",
    "nothing": "",
    "another alphabet": "ѕgd",
    "backslashes": "..\\PWNED",
}
strange = pytest.mark.parametrize("name", STRANGE.values(), ids=STRANGE.keys())


def tree(folder: Path) -> dict[str, int]:
    """Every file below a folder and how large it is; but for locks, and the files that SQLite has while it is open."""
    files = (path for path in folder.rglob("*") if path.is_file())
    passing = ("sqlite-", ".lock")
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in files
        if not any(part in path.name for part in passing)
    }


def refused(*words: object, home: Path) -> str:
    """The one sentence with which a command refuses; below `home`, the parent of all folders, it writes nothing."""
    before = tree(home)
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert isinstance(done.exception, HotSwapError), done.output
    said = str(done.exception)
    assert said.isprintable()  # so it is one line
    new = {name for name in tree(home).keys() - before.keys() if not name.endswith(".lock")}
    assert not new
    assert not Path("/tmp/PWNED").exists()
    return said
