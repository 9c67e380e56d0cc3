"""Who wins on problems that are made for it: regret on rewards that stay, jump, drift, are hostile, or are ordered.

Regret is what the best arm of each moment would have paid on average, less what the proposed arms did, per step. All
runs of a bandit are trained at once, and every bandit meets the same problem.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from hotswap import (
    UCB1,
    Bandit,
    DiscountedUCB,
    EpsilonGreedy,
    Exp3S,
    FixedArm,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
    log_grid,
)

RUNS = 20
C = 0.02  # 2·s² for means that differ by about s = 0.1, as the docstring of UCB1 says


def regret(bandit: Bandit, means: Any, noise: float = 0.1) -> float:
    """Of the means `(steps, K)`, averaged over runs and steps."""
    steps, arms = means.shape
    generator = np.random.default_rng(7)
    state, lost = bandit.begin(RUNS, arms, seeds=range(RUNS)), 0.0
    for mean in means:
        arm, state = bandit.propose(state)
        state = bandit.observe(state, arm[:, None], (mean[arm] + generator.normal(0, noise, RUNS))[:, None])
        lost += (mean.max() - mean[arm]).mean()
    return float(lost / steps)


def stationary(steps: int = 1000) -> Any:
    return np.tile([0.1, 0.5, 0.3, 0.2, 0.6, 0.0], (steps, 1))


def abrupt(steps: int = 2700) -> Any:
    """The arm that was the worst becomes the best, twice."""
    thirds = [[0.1, 0.5, 0.3, 0.9, 0.2], [0.8, 0.1, 0.3, 0.0, 0.2], [0.0, 0.1, 0.9, 0.1, 0.2]]
    return np.repeat(thirds, steps // 3, axis=0)


def drifting(steps: int = 1200) -> Any:
    """A wave that passes over the arms once: each is the best in its turn, and its neighbours nearly so."""
    time, arm = np.meshgrid(np.arange(steps) / steps, np.arange(6) / 6, indexing="ij")
    return 0.5 + 0.5 * np.cos(2 * np.pi * (time - arm))


def ordered(steps: int = 400, arms: int = 60) -> Any:
    """One hill over many arms, ten to a decade, that moves by a decade half way."""
    decades = -0.1 * np.arange(arms)
    hills = [np.exp(-0.5 * ((decades - top) / 0.7) ** 2) for top in (-2.0, -3.0)]
    return np.repeat(hills, steps // 2, axis=0)


@cache
def regrets(problem: str) -> dict[str, float]:
    bandits: dict[str, Bandit] = {
        "ucb1": UCB1(exploration=C),
        "discounted": DiscountedUCB(discount=0.98, exploration=C),
        "window": SlidingWindowUCB(window=100, exploration=C),
        "thompson": ThompsonSampling(discount=0.98, noise=0.1),
        "exp3s": Exp3S(),
        "greedy": EpsilonGreedy(epsilon=0.05, discount=0.98),
        "fixed": FixedArm(arm=2),
    }
    means = {"stationary": stationary, "abrupt": abrupt, "drifting": drifting}[problem]()
    return {name: regret(bandit, means) for name, bandit in bandits.items()}


def test_stationary() -> None:
    """Where nothing changes, to forget costs; and all that learn beat the one that does not."""
    found = regrets("stationary")
    assert all(found["ucb1"] < 0.5 * found[name] for name in found if name != "ucb1")
    assert found["ucb1"] < 0.01
    assert found["fixed"] == pytest.approx(0.3)
    assert all(found[name] < 0.85 * 0.3 for name in found if name != "fixed")


def test_stationary_thompson_sampling_without_forgetting_is_as_good_as_ucb1() -> None:
    assert regret(ThompsonSampling(discount=1.0, noise=0.1), stationary()) < 1.1 * regrets("stationary")["ucb1"]


def test_regret_per_step_falls_where_nothing_is_forgotten_and_not_for_a_fixed_arm() -> None:
    """Logarithmic regret against linear regret."""
    assert regret(UCB1(exploration=C), stationary(1600)) < 0.5 * regret(UCB1(exploration=C), stationary(400))
    assert regret(FixedArm(arm=2), stationary(800)) == pytest.approx(regret(FixedArm(arm=2), stationary(400)))


@pytest.mark.parametrize("name", ["discounted", "window", "exp3s", "thompson", "greedy"])
def test_abrupt_changes(name: str) -> None:
    """What forgets, or always gives every arm a share, beats what remembers everything."""
    found = regrets("abrupt")
    assert found[name] < 0.85 * found["ucb1"]


@pytest.mark.parametrize("name", ["discounted", "window", "thompson", "greedy"])
def test_drift(name: str) -> None:
    found = regrets("drifting")
    assert found[name] < 0.5 * found["ucb1"]
    assert found[name] < 0.5 * found["fixed"]


def hostile(bandit: Bandit, steps: int = 1500) -> Any:
    """Rewards `(steps, 2)` of an opponent who foresees a bandit that is not random: what it proposes pays nothing."""
    state, rewards = bandit.begin(1, 2), []
    for _ in range(steps):
        arm, state = bandit.propose(state)
        rewards.append([0.0, 1.0] if arm[0] == 0 else [1.0, 0.0])
        state = bandit.observe(state, arm[:, None], np.zeros((1, 1)))
    return np.array(rewards)


@pytest.mark.parametrize(
    "victim", [UCB1(exploration=C), DiscountedUCB(discount=0.98), SlidingWindowUCB(window=100)], ids=repr
)
def test_an_opponent_who_foresees_what_is_not_random(victim: Bandit) -> None:
    """It earns nothing at all, whereas the better one of two arms would have earned half; Exp3.S comes near that."""
    rewards = hostile(victim)
    steps = len(rewards)
    assert regret(victim, rewards, noise=0.0) == 1.0
    best = rewards.mean(axis=0).max()
    earned = 1 - regret(Exp3S(), rewards, noise=0.0)
    assert best >= 0.5
    assert earned > best - 2.63 * np.sqrt(2 * np.log(2) / steps)  # the bound of Exp3, section 3 of the same paper


def test_many_ordered_arms() -> None:
    """Neighbours that inform each other find the hill before each arm was tried for itself."""
    means, rates = ordered(), log_grid(1.0, 10**-5.9, 60)
    smoothed = regret(SmoothedUCB(width=0.25, discount=0.98, exploration=C, rates=rates), means)
    assert smoothed < 0.5 * regret(DiscountedUCB(discount=0.98, exploration=C), means)
    assert smoothed < 0.75 * regret(UCB1(exploration=C), means)
