"""Rewards at the edges: what enters an arm's statistics is always finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotswap import LogReduction, RelativeReduction, Reward, SettingError

INF, NAN = math.inf, math.nan


def grant(reward: Reward, before: float, *after: float) -> list[float]:
    """In NumPy and in torch, which must agree."""
    start, trials = np.array([before]), np.array([after])
    with np.errstate(over="ignore"):
        ours = reward.grant(reward.follow(reward.start(1), start)[:, None], start[:, None], trials)[0].tolist()
    scale = reward.follow(reward.start(1, torch.device("cpu")), torch.from_numpy(start))[:, None]
    tensors = torch.from_numpy(start)[:, None], torch.from_numpy(trials)
    assert reward.grant(scale, *tensors)[0].tolist() == pytest.approx(ours)
    number = reward.follow(0.0, start[0].item())
    assert [reward.grant(number, start[0].item(), trial) for trial in trials[0].tolist()] == pytest.approx(ours)
    return ours


def test_logarithmic_by_hand() -> None:
    assert grant(LogReduction(), 1.0, 0.5, 2.0, 1.0) == pytest.approx([math.log(2), -math.log(2), 0.0])


def test_a_loss_of_zero_is_fine() -> None:
    assert grant(LogReduction(), 1.0, 0.0) == pytest.approx([34.538776394910684])
    assert grant(LogReduction(), 0.0, 0.0) == [0.0]


@pytest.mark.parametrize("reward", [LogReduction(), RelativeReduction()])
def test_what_is_not_finite_earns_the_bound(reward: Reward) -> None:
    assert grant(reward, 1.0, NAN, INF, -INF) == [-100.0] * 3


@given(before=st.floats(0, 1e300), after=st.floats(allow_nan=True, allow_infinity=True))
def test_rewards_stay_within_the_bound(before: float, after: float) -> None:
    for reward in (LogReduction(bound=3.0), RelativeReduction(bound=3.0)):
        (value,) = grant(reward, before, after)
        assert -3.0 <= value <= 3.0


def test_relative_to_a_running_scale() -> None:
    reward = RelativeReduction(memory=0.5)
    before = np.array([-4.0])
    scale = reward.follow(reward.start(1), before)
    assert scale.tolist() == [4.0]
    assert reward.grant(scale, before, np.array([[-6.0, -3.0]])).tolist() == [[0.5, -0.25]]
    assert reward.follow(scale, np.array([0.0])).tolist() == [2.0]  # through zero: no jump


def test_refuses() -> None:
    with pytest.raises(SettingError, match="bound must be positive"):
        LogReduction(bound=0.0)
    with pytest.raises(SettingError, match="tiny must be positive"):
        LogReduction(tiny=-1.0)
    with pytest.raises(SettingError, match=r"memory must be in \[0, 1\)"):
        RelativeReduction(memory=1.0)
