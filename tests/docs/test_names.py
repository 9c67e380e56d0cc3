"""Every name that the table from paper to code gives exists."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import get_annotations
from typing import Any

import pytest

from tests.docs.helpers import DOCS

PAGE = (DOCS / "paper-to-code.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(hotswap(?:\.\w+)+)`", PAGE)))


def resolve(name: str) -> None:
    """Import the longest prefix that is a module, then follow attributes; a field without a default is one too."""
    parts = name.split(".")
    found: Any = None
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[length:]:
        if isinstance(found, type) and not hasattr(found, part) and part in annotated(found):
            return
        found = getattr(found, part)


def annotated(kind: type) -> set[str]:
    return {name for base in kind.__mro__ for name in get_annotations(base)}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_the_table_resolves(name: str) -> None:
    resolve(name)


def test_there_are_names_and_a_wrong_one_is_noticed() -> None:
    assert len(NAMES) > 40
    with pytest.raises(AttributeError):
        resolve("hotswap.DiscountedUCB.gamma")


def test_tables_have_as_many_cells_as_headings() -> None:
    for table in re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE):
        widths = {line.count("|") for line in table.splitlines()}
        assert len(widths) == 1, table
