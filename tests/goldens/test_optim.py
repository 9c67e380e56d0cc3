"""The optimizers and the oracle do what they did when `optim.json` was written; see `tests/goldens/optim.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.goldens.optim import FILE, SETUPS, SPACING, trained

ALIKE = 40
"""Steps in float32 whose roundings have not grown yet, on any processor."""


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return trained()


@pytest.fixture(scope="module")
def then() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return kept


@pytest.mark.parametrize("name", SETUPS)
def test_optimizers_take_the_same_steps(name: str, now: dict[str, Any], then: dict[str, Any]) -> None:
    ours, theirs = now["setups"][name], then["setups"][name]
    for what, alike in (("arms", ALIKE), ("trials", ALIKE), ("losses", ALIKE // SPACING)):
        assert close(ours["float64"][what], theirs["float64"][what])
        assert close(ours["float32"][what][:alike], theirs["float32"][what][:alike])
    if now["arithmetic"] == then["arithmetic"]:
        assert ours == theirs


def test_the_oracle_takes_the_same_steps(now: dict[str, Any], then: dict[str, Any]) -> None:
    assert set(now["oracle"]) == set(then["oracle"])
    for name, steps in then["oracle"].items():
        for what, wanted in steps.items():
            assert close(now["oracle"][name][what], wanted), f"{what} of {name}"


def close(found: list[Any], wanted: list[Any]) -> bool:
    """Equal, but for the last digit that is kept of a loss."""
    return len(found) == len(wanted) and all(
        one == other or (isinstance(other, float) and one == pytest.approx(other, rel=2e-3, abs=1e-12))
        for one, other in zip(found, wanted, strict=True)
    )
