"""The names a user relies on."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hotswap


def test_exactly_these_names_are_public() -> None:
    assert sorted(hotswap.__all__) == hotswap.__all__
    assert set(hotswap.__all__) == set(hotswap._HOME) | {"__version__"}
    assert {
        "HotSwap",
        "HotSwapSGD",
        "log_grid",
        "DiscountedUCB",
        "Backtracking",
        "FirstDecrease",
        "HotSwapError",
        "in_trial",
    } <= set(hotswap.__all__)
    for name in hotswap.__all__:
        assert getattr(hotswap, name) is not None
    assert dir(hotswap) == sorted(hotswap.__all__)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'HotSwapp'"):
        hotswap.HotSwapp  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, hotswap, hotswap.errors, hotswap.arms, hotswap.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
