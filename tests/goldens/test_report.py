"""Figures, tables, claims and scores have the numbers that they always had."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.goldens.report import FILE, goldens


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two documents differ; numbers differ if they are further apart than 1e-12 of their size."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from differences(old[key], new[key], f"{place}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{place}[{at}]")
    elif not _alike(old, new):
        yield f"{place}: {old} became {new}"


def _alike(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-12) or (math.isnan(old) and math.isnan(new))
    return bool(old == new)


def test_numbers_of_figures_tables_claims_and_scores_are_as_they_were() -> None:
    found = list(differences(json.loads(FILE.read_text(encoding="utf-8")), goldens()))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize(
    ("old", "new"), [([1.0], [1.0 + 1e-9]), ({"a": 1}, {"b": 1}), ([1.0, 2.0], [1.0]), ("reproduced", "not")]
)
def test_a_difference_is_noticed(old: Any, new: Any) -> None:
    assert list(differences(old, new))
