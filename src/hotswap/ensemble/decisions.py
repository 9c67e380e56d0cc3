"""The decisions of a hot-swapped step, for all runs at once.

Results are written in place, into tensors that are kept from step to step, so that each function compiles to a few
kernels. A loop is over groups of runs with equal parts, never over runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hotswap.bandits import Bandit
from hotswap.ensemble.variants import ArmTables, Direction, Group, Runs, Variant, grouped
from hotswap.searches.base import AnyWalk
from hotswap.states import State, arrays_of, replaced

__all__ = [
    "Groups",
    "Running",
    "advance",
    "begin_walks",
    "consult",
    "count_trials",
    "grant",
    "groups_of",
    "look_ahead",
    "not_running",
    "open_step",
    "settle",
    "take",
    "teach",
    "turn",
    "walk_on",
]


class Groups(NamedTuple):
    """The bandits, searches, rewards and paces, each with the rows of its runs."""

    arms: int
    """K, the number of arms."""
    row: int
    """The number of arms in a row, within which only the rate changes."""
    untried: bool
    """Whether some run may take an arm without a trial of it."""
    bandits: list[Group]
    """A part is three things: the bandit, whether it hears of arms that were taken without a trial, and whether it is
    asked if it is unsure."""
    searches: list[Group]
    """The searches, with the walks of this step as their state."""
    rewards: list[Group]
    """The rewards, with the running scales as their state."""
    paces: list[Group]
    """The paces of runs that do not search in every step."""


class Running(NamedTuple):
    """Values that pieces of a step pass on to each other and to the next step: `(R,)` each."""

    loss: Tensor
    """The loss of the minibatch at the start point, float64."""
    before: Tensor
    """The loss that trials have to beat, float64: another one only where the next minibatch judges, too."""
    searching: Tensor
    """Whether the run searches in this step."""
    pending: Tensor
    """The arm that the step before took without a trial, and that has no reward yet; −1 for none."""
    in_force: Tensor
    """The arm that was taken last; before the first one, that of the smallest rate."""
    proposal: Tensor
    """The arm that the bandit proposes."""
    unsure: Tensor
    """Whether the bandit is unsure."""
    earned: Tensor
    """The reward of the pending arm, float64."""


# --- before the first step --------------------------------------------------------------------------------------------


def groups_of(runs: Runs, seeds: Sequence[int], device: torch.device) -> Groups:
    """The groups, with their states before the first step; there is one seed for each run."""
    first = runs[0][0].arms
    arms, none = len(first), torch.zeros(len(seeds), dtype=torch.float64, device=device)

    def asked(variant: Variant) -> tuple[Bandit, bool, bool]:
        return variant.bandit.knowing(variant.arms), variant.untried, variant.pace.when == "unsure"

    def count(rows: slice) -> int:
        return int(rows.stop - rows.start)

    return Groups(
        arms=arms,
        row=first.row,
        untried=any(variant.untried for variant, _ in runs),
        bandits=grouped(runs, asked, lambda part, rows: _apart(part[0].begin(count(rows), arms, device, seeds[rows]))),
        searches=grouped(
            runs,
            lambda variant: variant.search,
            lambda search, rows: _apart(search.begin(none[rows].long(), none[rows], arms=arms)),
        ),
        rewards=grouped(runs, lambda variant: variant.reward, lambda reward, rows: reward.start(count(rows), device)),
        paces=grouped(
            runs,
            lambda variant: None if variant.pace.always else variant.pace,
            lambda pace, rows: _apart(pace.start(count(rows), device)),
        ),
    )


def _apart(state: State) -> State:
    """The same state with a storage of its own for every field."""
    return replaced(state, {name: tensor.clone() for name, tensor in arrays_of(state).items()})


def not_running(runs: int, arms: int, device: torch.device) -> Running:
    """Before the first step."""
    number, yes_or_no, loss = (
        torch.zeros(runs, dtype=dtype, device=device) for dtype in (torch.int64, torch.bool, torch.float64)
    )
    return Running(
        loss=loss,
        before=loss.clone(),
        searching=~yes_or_no,
        pending=number - 1,
        in_force=number + (arms - 1),
        proposal=number,
        unsure=yes_or_no,
        earned=loss.clone(),
    )


# --- the beginning of a step ------------------------------------------------------------------------------------------


def turn(
    base: Direction, gradient: Tensor, slots: dict[str, Tensor], step: Tensor, slope: Tensor, norm: Tensor
) -> None:
    """Write the direction over the gradient; ⟨g, d⟩, by how much the loss falls for a small step along d, and |g|."""
    direction = base.turned(gradient, slots, step)
    slope.copy_((gradient * direction).sum(1))
    norm.copy_(torch.linalg.vector_norm(gradient, dim=1))
    gradient.copy_(direction)


def open_step(groups: Groups, running: Running, loss: Tensor, to_beat: Tensor) -> None:
    """Reward what the step before took untried, propose arms, and begin the walks, which have `to_beat` to beat."""
    if groups.untried:
        settle(groups, running, loss)
    for group in groups.bandits:
        consult(group, running)
    begin_walks(groups, running, loss, to_beat)


def settle(groups: Groups, running: Running, loss: Tensor) -> None:
    """Reward the arm that the step before took untried: the loss after it is known now."""
    for reward, rows, scale in groups.rewards:
        running.earned[rows] = reward.grant(scale, running.loss[rows], loss[rows])


def consult(group: Group, running: Running) -> None:
    """Tell a bandit the reward of an untried arm, and ask the bandit for an arm."""
    (bandit, told, asked), rows, learned = group
    state = learned
    if told:
        pending = running.pending[rows, None]
        state = bandit.observe(state, pending.clamp(min=0), running.earned[rows, None], pending >= 0)
    running.proposal[rows], proposed = bandit.propose(state)
    _store(learned, proposed)
    if asked:
        running.unsure[rows] = bandit.unsure(proposed)


def begin_walks(groups: Groups, running: Running, loss: Tensor, to_beat: Tensor) -> None:
    """Decide which runs search, and begin their walks from the proposed arms."""
    for pace, rows, state in groups.paces:
        followed = pace.follow(state, loss[rows])
        due = pace.due(followed, running.unsure[rows])
        running.searching[rows] = due
        _store(state, pace.after(followed, due))
    for reward, rows, scale in groups.rewards:
        scale.copy_(reward.follow(scale, to_beat[rows]))
    running.loss.copy_(loss)
    running.before.copy_(to_beat)
    for search, rows, walk in groups.searches:
        begun = search.begin(running.proposal[rows], to_beat[rows], arms=groups.arms, row=groups.row)
        if groups.untried:
            begun = replaced(begun, done=begun.done | ~running.searching[rows])
        _store(walk, begun)


# --- a block of trials ------------------------------------------------------------------------------------------------


def look_ahead(groups: Groups, count: int) -> Tensor:
    """The arms `(R, J)` to evaluate next: those where the walks stand, then those that the searches foresee."""
    found = []
    for search, _, walk in groups.searches:
        foreseen = search.foresee(walk, count).clamp(0, groups.arms - 1)
        found.append(torch.cat([walk.arm[:, None], foreseen[:, 1:]], dim=1))
    return _joined(found)


def advance(
    groups: Groups,
    running: Running,
    rates: Tensor,
    slope: Tensor,
    arms: Tensor,
    losses: Tensor,
    trials: Tensor,
    passes: Tensor,
    each: Tensor,
) -> None:
    """Show the losses `(R, J)` of a block to the searches one after the other, and teach the bandits what was tried."""
    happened = torch.cat([walk_on(group, rates, slope, arms, losses) for group in groups.searches])
    rewards = grant(groups, running, losses)
    for group in groups.bandits:
        teach(group, arms, rewards, happened)
    count_trials(happened, trials, passes, each)


def walk_on(group: Group, rates: Tensor, slope: Tensor, arms: Tensor, losses: Tensor) -> Tensor:
    """Show a block's losses to a search; returns which of its trials happened, `(R, J)` for the search's runs.

    A run sees a loss only if it is that of the arm where its walk stands; otherwise it waits for the next block.
    """
    search, rows, walk = group
    now, tried = walk, []
    for number in range(losses.shape[1]):
        arm, loss = arms[rows, number], losses[rows, number]
        here = ~now.done & (arm == now.arm)
        if search.needs_slope:
            rate = rates[rows].gather(1, arm.clamp(min=0)[:, None])[:, 0]
            seen = search.observe(now, loss, rate * slope[rows])
        else:
            seen = search.observe(now, loss)
        now = _where(here, seen, now)
        tried.append(here)
    _store(walk, now)
    return torch.stack(tried, dim=1)


def grant(groups: Groups, running: Running, losses: Tensor) -> Tensor:
    """The rewards of trials with these losses `(R, J)`."""
    return _joined(
        [
            reward.grant(scale[:, None], running.before[rows, None], losses[rows])
            for reward, rows, scale in groups.rewards
        ]
    )


def teach(group: Group, arms: Tensor, rewards: Tensor, happened: Tensor) -> None:
    """Tell a bandit the rewards of the trials that happened."""
    (bandit, *_), rows, state = group
    _store(state, bandit.observe(state, arms[rows].clamp(min=0), rewards[rows], happened[rows]))


def count_trials(happened: Tensor, trials: Tensor, passes: Tensor, each: Tensor) -> None:
    """Count the trials of a block, and their forward passes: `each` `(R,)` for one trial."""
    made = happened.sum(1)
    trials += made
    passes += each * made


# --- the end of a step ------------------------------------------------------------------------------------------------


def take(
    groups: Groups,
    running: Running,
    tables: ArmTables,
    theta: Tensor,
    direction: Tensor,
    velocity: Tensor | None,
    rate_sum: Tensor,
    arm_counts: Tensor,
    passes: Tensor,
    spent: float,
    norm_sum: Tensor,
    norms: Tensor | None,
) -> None:
    """Move every run by the arm it has chosen, or not at all.

    `spent` is how many forward passes the step took beside its trials. `norms` `(R,)` are those of the gradients; None
    where the directions are the gradients.
    """
    chosen = _joined([search.choose(walk) for search, _, walk in groups.searches])
    if groups.untried:
        chosen = _remember(groups, running, chosen)
    moved = chosen >= 0
    known = chosen.clamp(min=0)[:, None]
    rate = torch.where(moved, tables.rate.gather(1, known)[:, 0], 0.0)
    if velocity is None:
        theta.sub_(torch.where(moved[:, None], rate.to(theta.dtype)[:, None] * direction, 0.0))
    else:
        used = torch.where(moved, chosen, groups.arms - 1)[:, None]  # without a move, state advances as by the last arm
        momentum, decay = (table.gather(1, used).to(theta.dtype) for table in (tables.momentum, tables.decay))
        gradient = direction + decay * theta
        step = momentum * velocity + gradient
        velocity.copy_(torch.where(momentum != 0, step, velocity))  # torch's SGD leaves it alone without momentum
        theta.sub_(torch.where(moved[:, None], rate.to(theta.dtype)[:, None] * step, 0.0))
    norm_sum += torch.linalg.vector_norm(direction, dim=1) if norms is None else norms
    rate_sum += rate
    arm_counts += chosen[:, None] == torch.arange(groups.arms, device=theta.device)
    passes += spent


def _remember(groups: Groups, running: Running, chosen: Tensor) -> Tensor:
    """The arm that each run takes, also where it did not search; note it for the next step."""
    chosen = torch.where(running.searching, chosen, running.in_force)
    tried = running.searching.clone()
    for search, rows, _ in groups.searches:
        if not search.tries:
            tried[rows] = False
    taken = chosen >= 0
    running.pending.copy_(torch.where(taken & ~tried, chosen, -1))
    running.in_force.copy_(torch.where(taken, chosen, running.in_force))
    return chosen


def _joined(found: list[Tensor]) -> Tensor:
    return torch.cat(found) if len(found) > 1 else found[0]


def _where(condition: Tensor, yes: AnyWalk, no: AnyWalk) -> AnyWalk:
    """A walk whose fields come, for each run, from one walk or from the other."""
    other = arrays_of(no)
    return replaced(yes, {name: torch.where(condition, array, other[name]) for name, array in arrays_of(yes).items()})


def _store(kept: State, new: State) -> None:
    """Copy every field into the tensor that is kept for it."""
    values = arrays_of(new)
    for name, tensor in arrays_of(kept).items():
        tensor.copy_(values[name])
