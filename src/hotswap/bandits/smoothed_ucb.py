"""Smoothed UCB: discounted UCB in which a reward also informs the arms beside the one that earned it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from hotswap.arms import Arms
from hotswap.arrays import Array, Device, bounded, namespace, zeros
from hotswap.bandits.base import (
    BANDITS,
    Bandit,
    best_two_overlap,
    check_exploration,
    refuse_unless,
    trials_as_arrays,
    upper_confidence,
)
from hotswap.errors import SettingError
from hotswap.states import State, replaced

__all__ = ["SmoothedState", "SmoothedUCB"]

APART = 0.25  # decades between arms of which nothing is known, as in `log_grid()`
FAINT = 0.01  # a weight below this is none


class SmoothedState(NamedTuple):
    """Discounted sums, and where the arms are."""

    rewards: Array
    """`(R, K)` float64: the discounted sum of the rewards of each arm."""
    counts: Array
    """`(R, K)` float64: the discounted number of trials of each arm."""
    decades: Array
    """`(R, L)` float64: log10 of the rates of the L arms of a row, which never change."""


@BANDITS.register("smoothed_ucb")
@dataclass(frozen=True)
class SmoothedUCB(Bandit):
    """Discounted UCB over arms that are ordered: what one rate earns says something about the rates beside it.

    With γ = `discount`, c = `exploration`, and per arm the discounted sums of its rewards and of its trials,

        ucb_i = Σ_j κ_ij · rewards_j / N_i + sqrt(c · ln(n) / N_i),    N_i = Σ_j κ_ij · counts_j,    n = Σ counts,

        κ_ij = exp(−½ · ((log10 rate_i − log10 rate_j) / width)²), or 0 where that is below 0.01:

    beyond three times `width`, which is in decades, arms say nothing about each other. Every proposal first multiplies
    rewards and counts by γ. An arm with no trial so near has ucb = +∞, so that the first steps go through the grid in
    strides of a few arms, the lowest index first. Ties go to the lower index, the larger rate.

    With several hyperparameters the sums are smoothed within a row, where only the one that is walked along differs.
    What the arms stand for comes from `Bandit.knowing`: the rates of `lr`. Values of another hyperparameter, and arms
    of which nothing was told, are taken to lie a quarter of a decade apart, in the order they have.

    A reward outside of ±`bound` counts as that bound: a trial that overflows earns −100, and would spoil the means of
    good rates near it for hundreds of steps. Even so, where the rewards fall off a cliff, because the next larger rate
    diverges, smoothing sees a slope, and prefers a rate one or two arms below it.

    `width` = 0.25 is the distance of two arms of `log_grid()`, so that an arm's neighbours count 0.61 and those after
    them 0.14; the finer the grid, the more this bandit gains over `DiscountedUCB`. γ and c are the same as there, and
    `bound` = 1 is a loss that changes by the factor e. The kernel is that of Nadaraya and Watson; see Combes and
    Proutière, "Unimodal bandits: regret lower bounds and optimal algorithms", 2014, for how much an order among arms
    can help.

    rates: the rates of one row of arms, for arms that `knowing` does not tell of.
    row: how many arms a row has; None for all.
    """

    width: float = 0.25
    discount: float = 0.99
    exploration: float = 1e-8
    rates: tuple[float, ...] | None = field(default=None, repr=False)
    bound: float = 1.0
    row: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        refuse_unless(math.isfinite(self.width) and self.width > 0, self, "width", "positive and finite")
        refuse_unless(0 < self.discount <= 1, self, "discount", "in (0, 1]")
        check_exploration(self, self.exploration)
        refuse_unless(math.isfinite(self.bound) and self.bound > 0, self, "bound", "positive and finite")
        if self.rates is not None:
            object.__setattr__(self, "rates", tuple(self.rates))  # a list, from a study's file
            positive = all(math.isfinite(rate) and rate > 0 for rate in self.rates)
            refuse_unless(positive and len(self.rates) > 0, self, "rates", "positive, finite rates, at least one")
        row: object = self.row
        whole = row is None or (isinstance(row, int) and not isinstance(row, bool) and row > 0)
        refuse_unless(whole, self, "row", "a whole number of at least 1, or None")
        if self.rates is not None and self.row not in (None, len(self.rates)):
            raise SettingError(
                f"SmoothedUCB(row={self.row!r}): row must be the number of rates, which is {len(self.rates)}; leave it "
                "out."
            )

    def knowing(self, arms: Arms) -> SmoothedUCB:
        """See `Bandit.knowing`: the rates of a row, and how long it is. Rates that were given stay."""
        if self.rates is not None:
            return self
        values = arms.axes[-1]
        rates = tuple(value for value in values if isinstance(value, float) and value > 0)
        known = arms.names[-1] == "lr" and len(rates) == len(values)
        return replace(self, rates=rates if known else None, row=arms.row)

    def start(self, runs: int, arms: int, device: Device = None) -> SmoothedState:
        """See `Bandit.start`.

        Raises:
            SettingError: The arms are not so many that they make whole rows.
        """
        row = arms if self.row is None else self.row
        decades = [-APART * place for place in range(row)]
        if self.rates is not None:
            decades = [math.log10(rate) for rate in self.rates]
        if arms % len(decades):
            raise SettingError(
                f"SmoothedUCB: {arms} arms cannot be rows of {len(decades)}; give the rates of these arms, or leave "
                "them out."
            )
        place = np.tile(np.array(decades, dtype=np.float64), (runs, 1))
        return SmoothedState(
            rewards=zeros((runs, arms), "float64", device),
            counts=zeros((runs, arms), "float64", device),
            decades=place if device is None else sys.modules["torch"].from_numpy(place).to(device),
        )

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        faded = replaced(state, rewards=self.discount * state.rewards, counts=self.discount * state.counts)
        return self.index(faded).argmax(axis=1), faded

    def index(self, state: State) -> Array:
        """See `Bandit.index`."""
        return self._bounds(state, self.exploration)

    def observe(self, state: State, arm: Array, reward: Array, tried: Array | None = None) -> State:
        """See `Bandit.observe`."""
        arm, reward, happened = trials_as_arrays(state.counts, arm, reward, tried)
        return super().observe(state, arm, bounded(reward, self.bound), happened)

    def unsure(self, state: State) -> Array:
        """See `Bandit.unsure`, with the smoothed means; arms that share their trials are told apart by chance only."""
        index, means = self._bounds(state, self.exploration), self._bounds(state, 0.0)
        xp = namespace(index)
        known = xp.isfinite(index)
        index, means = xp.where(known, index, 0.0), xp.where(known, means, 0.0)
        return best_two_overlap(means, index - means, known)

    def restored(self, state: State, arrays: Mapping[str, Array], version: int = 1) -> State:
        """See `Bandit.restored`; where the arms are is a setting, and stays what it is now."""
        return replaced(super().restored(state, arrays, version), decades=state.decades)

    def _bounds(self, state: State, exploration: float) -> Array:
        """`(R, K)`: the upper confidence bounds of the smoothed sums."""
        xp, place = namespace(state.counts), state.decades
        apart = (place[:, :, None] - place[:, None, :]) / self.width
        weight = xp.exp(-0.5 * apart * apart)
        kernel = xp.where(weight < FAINT, 0.0, weight)[:, None]  # (R, 1, L, L), the same in every row
        (runs, arms), row = state.counts.shape, place.shape[1]

        def smoothed(sums: Array) -> Array:
            rows = sums.reshape(runs, arms // row, 1, row)
            return (rows * kernel).sum(axis=3).reshape(runs, arms)  # as in `added_at`, in a fixed order

        n = state.counts.sum(axis=1)
        return upper_confidence(smoothed(state.rewards), smoothed(state.counts), n, exploration)
