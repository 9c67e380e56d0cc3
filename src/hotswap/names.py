"""Names and words that are read from files. Names are of workloads, methods, studies, algorithms, networks, data sets,
units and runs; words are free, such as the reason why a run failed.

A name becomes part of the name of a file, of a table and of a page. So every name that is read from a file is checked
here before it is used: a name such as `x/../../y` would lead out of the folder that a command writes to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any

from hotswap.errors import UnsafeNameError

__all__ = ["NAMED", "RULE", "check_name", "check_named", "is_name", "one_line"]

RULE = "letters (a-z, A-Z), digits, '_', '-' and '.' only, at most 100 of them, and neither '.' nor '..'"
"""The characters that a name consists of."""

RUN_RULE = "letters (a-z, A-Z), digits, '_', '-', '.' and '+' only, at most 255 of them, and neither '.' nor '..'"
"""The characters that the name of a run consists of. It is made of other names and of numbers, such as 1e+20."""

NAMED = ("workload", "method", "configuration", "algorithm", "unit", "run")
"""The columns of tables that hold names, each called by what it is the name of."""

_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,100}")
_RUN = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.+-]{1,255}")

_UNSEEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

_SHOWN = Repr()
_SHOWN.maxstring = _SHOWN.maxother = 60


def is_name(value: object) -> bool:
    """Whether a value can be a name."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def check_name(value: object, what: str, place: str) -> None:
    """Raise where a value from a file cannot be the name of a thing.

    Args:
        value: What the file has.
        what: What it is the name of, in the singular: "workload". A "run" follows the rule for runs.
        place: The file, and where in it: "runs.parquet, row 3".

    Raises:
        UnsafeNameError: The value cannot be a name.
    """
    if what == "run":
        allowed, rule = isinstance(value, str) and _RUN.fullmatch(value) is not None, RUN_RULE
    else:
        allowed, rule = is_name(value), RULE
    if not allowed:
        raise UnsafeNameError(
            f"{place}: the {what} is called {_SHOWN.repr(value)}, but a name has {rule}; nothing of this file was used."
        )


def check_named(columns: Mapping[str, Sequence[Any]], place: str) -> None:
    """Check the names in a table, column by column; `place` is its file.

    Raises:
        UnsafeNameError: A value cannot be a name; the sentence says in which row it is.
    """
    for what in NAMED:
        checked: set[Any] = set()
        for row, value in enumerate(columns.get(what, ()), start=1):
            if not (isinstance(value, str) and value in checked):
                check_name(value, what, f"{place}, row {row}")
                checked.add(value)


def one_line(text: str) -> str:
    """Words from a file without what a terminal or a page would act upon: line ends and other control characters."""
    return _UNSEEN.sub(" ", text).strip()
