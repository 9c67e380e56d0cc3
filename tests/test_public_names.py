"""The names a user relies on."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hotswap


def test_exactly_these_names_are_public() -> None:
    assert sorted(hotswap.__all__) == hotswap.__all__
    assert hotswap.__all__ == [
        "Armijo",
        "Arms",
        "Backtracking",
        "Bandit",
        "BothWays",
        "CheckpointError",
        "ClosureError",
        "DataError",
        "DiscountedUCB",
        "EpsilonGreedy",
        "Exp3S",
        "FactoredBandit",
        "FirstDecrease",
        "FixedArm",
        "HotSwap",
        "HotSwapError",
        "HotSwapSGD",
        "HotSwapWarning",
        "LogReduction",
        "LossError",
        "Muon",
        "NoSearch",
        "Race",
        "RelativeReduction",
        "Reward",
        "Search",
        "SettingError",
        "SlidingWindowUCB",
        "SmoothedUCB",
        "StepRecord",
        "StudyError",
        "ThompsonSampling",
        "UCB1",
        "UnitTaken",
        "UnsupportedError",
        "__version__",
        "accumulate",
        "in_trial",
        "lanes",
        "log_grid",
        "train_until",
    ]
    for name in hotswap.__all__:
        assert getattr(hotswap, name) is not None
    assert dir(hotswap) == sorted(hotswap.__all__)


def test_rooms_are_reached_without_importing_them() -> None:
    code = "import hotswap; hotswap.convergence.steps(3); hotswap.errors.SettingError; hotswap.data.load"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'HotSwapp'"):
        hotswap.HotSwapp  # noqa: B018


@pytest.mark.parametrize(("name", "instead"), [("Guard", "search_every=n"), ("mixture", "trial_closure=lambda")])
def test_a_name_that_was_removed_says_what_to_write(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"hotswap.{name} was removed: .*{instead}"):
        getattr(hotswap, name)
