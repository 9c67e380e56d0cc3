"""Who decides for which runs of a hot-swapped ensemble, and what the parts of a step tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hotswap.bandits import Bandit
from hotswap.ensemble.updates.variants import Variant, shared
from hotswap.states import State, arrays_of, replaced

__all__ = ["BanditRows", "Groups", "Rows", "Running", "groups_of"]


class Rows(NamedTuple):
    """A part that some rows of the ensemble share, and its state for them."""

    part: Any
    start: int
    stop: int
    state: Any


class BanditRows(NamedTuple):
    """A bandit of some rows of the ensemble, its state for them, and what it is asked."""

    part: Any
    start: int
    stop: int
    state: Any
    told: bool
    """Whether it hears of arms that were taken without a trial."""
    asked: bool
    """Whether it has to say how sure it is."""
    guarded: bool
    """Whether some of the runs may go back to a snapshot."""


class Groups(NamedTuple):
    """Who decides for which runs."""

    arms: int
    """K, the number of arms."""
    row: int
    """How many arms there are in a row, within which only the rate changes."""
    untried: bool
    """Whether some run may take an arm without a trial of it, or go back to a snapshot."""
    bandits: list[BanditRows]
    searches: list[Rows]
    """With the walks of this step as their state."""
    rewards: list[Rows]
    """With the running scales as their state."""
    paces: list[Rows]
    """For runs that do not search in every step."""
    guards: list[Rows]
    """For runs that have one: pairs of a guard and of the reward that it judges by."""


class Running(NamedTuple):
    """What the parts of a step tell each other, and what the next step has to know of it: `(R,)` each."""

    loss: Tensor
    """The loss of the minibatch at the start point, float64."""
    before: Tensor
    """The loss that trials have to beat, float64: the same, unless another minibatch has a say in it."""
    searching: Tensor
    """Whether the run searches in this step."""
    pending: Tensor
    """The arm that was taken without a trial in the step before, and is still to be rewarded; −1 for none."""
    in_force: Tensor
    """The arm that was taken last; before the first one, that of the smallest rate."""
    back: Tensor
    """Whether the run goes back to its snapshot in this step."""
    keep: Tensor
    """Whether a snapshot of the run is to be taken."""
    proposal: Tensor
    """The arm that the bandit proposes."""
    unsure: Tensor
    """Whether the bandit is."""
    told_arm: Tensor
    """The arm that the bandit is told of at the beginning of the step."""
    told: Tensor
    """Whether it is told of one."""
    earned: Tensor
    """What that arm has earned, float64."""

    @classmethod
    def start(cls, runs: int, arms: int, device: torch.device) -> Running:
        """Before the first step."""

        def zeros(dtype: torch.dtype) -> Tensor:
            return torch.zeros(runs, dtype=dtype, device=device)

        numbers, yes_or_no, losses = torch.int64, torch.bool, torch.float64
        return cls(
            loss=zeros(losses),
            before=zeros(losses),
            searching=~zeros(yes_or_no),
            pending=zeros(numbers) - 1,
            in_force=zeros(numbers) + (arms - 1),
            back=zeros(yes_or_no),
            keep=zeros(yes_or_no),
            proposal=zeros(numbers),
            unsure=zeros(yes_or_no),
            told_arm=zeros(numbers),
            told=zeros(yes_or_no),
            earned=zeros(losses),
        )


def groups_of(variants: Sequence[tuple[Variant, int]], seeds: Sequence[int], device: torch.device) -> Groups:
    """The groups of variants with so many runs each, before the first step; seeds are those of the runs."""
    first = variants[0][0].arms
    arms = len(first)
    none = torch.zeros(len(seeds), dtype=torch.float64, device=device)
    return Groups(
        arms=arms,
        row=first.row,
        untried=any(variant.untried or variant.guard is not None for variant, _ in variants),
        bandits=[
            BanditRows(
                part[0], start, stop, _separate(part[0].begin(stop - start, arms, device, seeds[start:stop])), *part[1:]
            )
            for part, start, stop in shared(variants, _asked_of_bandit)
        ],
        searches=[
            Rows(search, start, stop, _separate(search.begin(none[start:stop].long(), none[start:stop], arms=arms)))
            for search, start, stop in shared(variants, lambda variant: variant.search)
        ],
        rewards=[
            Rows(reward, start, stop, reward.start(stop - start, device))
            for reward, start, stop in shared(variants, lambda variant: variant.reward)
        ],
        paces=[
            Rows(pace, start, stop, _separate(pace.start(stop - start, device)))
            for pace, start, stop in shared(variants, lambda variant: variant.pace)
            if not pace.always
        ],
        guards=[
            Rows(pair, start, stop, _separate(pair[0].start(stop - start, device)))
            for pair, start, stop in shared(variants, lambda v: None if v.guard is None else (v.guard, v.reward))
            if pair is not None
        ],
    )


def _asked_of_bandit(variant: Variant) -> tuple[Bandit, bool, bool, bool]:
    """The bandit, and what it is asked; see `BanditRows`."""
    guarded = variant.guard is not None
    return variant.bandit.knowing(variant.arms), variant.untried or guarded, variant.pace.when == "unsure", guarded


def _separate(state: State) -> State:
    """The same state with a storage of its own for every field."""
    return replaced(state, {name: tensor.clone() for name, tensor in arrays_of(state).items()})
