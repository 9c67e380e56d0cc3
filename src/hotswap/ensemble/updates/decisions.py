"""What each run decides in a hot-swapped step, for all runs at once.

`open_step`, `look_ahead`, `advance` and `take` are the parts of a step. Results are written in place, so that each
becomes a few kernels when it is compiled; a loop here is over the different bandits or searches of runs that are
trained together, never over runs. `open_step` and `advance` are made of pieces, one for each bandit and search, that do
not depend on each other: where there are many, a GPU works on them at the same time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hotswap.ensemble.updates.groups import BanditRows, Groups, Rows, Running
from hotswap.ensemble.updates.variants import ArmTables
from hotswap.searches.base import AnyWalk
from hotswap.states import State, arrays_of, replaced

__all__ = [
    "advance",
    "begin_walks",
    "consult",
    "count_trials",
    "grant",
    "look_ahead",
    "open_step",
    "settle",
    "take",
    "teach",
    "walk_on",
]


# --- the beginning of a step ------------------------------------------------------------------------------------------


def open_step(groups: Groups, running: Running, loss: Tensor, to_beat: Tensor) -> None:
    """Reward what the step before took untried, propose arms, and begin the walks, which have `to_beat` to beat."""
    if groups.untried:
        settle(groups, running, loss)
    for rows in groups.bandits:
        consult(rows, running)
    begin_walks(groups, running, loss, to_beat)


def settle(groups: Groups, running: Running, loss: Tensor) -> None:
    """Now that the loss after it is known, say what the arm has earned that was taken untried; or go back from it."""
    arm, told = running.pending, running.pending >= 0
    earned = torch.zeros_like(running.before)
    for reward, start, stop, scale in groups.rewards:
        earned[start:stop] = reward.grant(scale, running.loss[start:stop], loss[start:stop])
    for (guard, reward), start, stop, state in groups.guards:
        scale = torch.zeros_like(earned[start:stop])
        for _, first, last, own in groups.rewards:
            if first <= start and stop <= last:
                scale = own[start - first : stop - first]
        place = running.in_force[start:stop] % groups.row
        judged = guard.judge(state, loss[start:stop], place, groups.row, reward, scale)
        _store(state, judged.state)
        running.back[start:stop] = judged.back
        running.keep[start:stop] = judged.keep
        earned[start:stop] = torch.where(judged.back, judged.earned, earned[start:stop])
    if groups.guards:
        arm = torch.where(running.back, running.in_force, arm)
        told = told | running.back
    running.told_arm.copy_(arm.clamp(min=0))
    running.told.copy_(told)
    running.earned.copy_(earned)


def consult(rows: BanditRows, running: Running) -> None:
    """Tell a bandit what an untried arm has earned, and ask it for an arm. Runs that go back ask for none."""
    bandit, start, stop, learned, told, asked, guarded = rows
    state = learned
    if told:
        arm, earned, happened = (each[start:stop, None] for each in (running.told_arm, running.earned, running.told))
        state = bandit.observe(state, arm, earned, happened)
    proposal, proposed = bandit.propose(state)
    _store(learned, _where(running.back[start:stop], state, proposed) if guarded else proposed)
    running.proposal[start:stop] = proposal
    if asked:
        running.unsure[start:stop] = bandit.unsure(proposed)


def begin_walks(groups: Groups, running: Running, loss: Tensor, to_beat: Tensor) -> None:
    """Decide who searches, and begin the walks from what was proposed."""
    for (guard, _), start, stop, state in groups.guards:
        running.proposal[start:stop] = guard.lowered(state, running.proposal[start:stop], groups.row)
    for pace, start, stop, state in groups.paces:
        followed, back = pace.follow(state, loss[start:stop]), running.back[start:stop]
        due = pace.due(followed, running.unsure[start:stop])
        running.searching[start:stop] = due
        _store(state, _where(back, state, pace.after(followed, due)) if groups.guards else pace.after(followed, due))
    for _, start, stop, _ in groups.guards:
        if not any(first < stop and start < last for _, first, last, _ in groups.paces):
            running.searching[start:stop] = True
    if groups.guards:
        running.searching.logical_and_(~running.back)
    for reward, start, stop, scale in groups.rewards:
        scale.copy_(reward.follow(scale, to_beat[start:stop]))
    running.loss.copy_(loss)
    running.before.copy_(to_beat)
    for search, start, stop, walk in groups.searches:
        begun = search.begin(running.proposal[start:stop], to_beat[start:stop], arms=groups.arms, row=groups.row)
        if groups.untried:
            begun = replaced(begun, done=begun.done | ~running.searching[start:stop])
        _store(walk, begun)


# --- a block of trials ------------------------------------------------------------------------------------------------


def look_ahead(groups: Groups, count: int) -> Tensor:
    """The arms `(R, J)` to evaluate next: those where the walks stand, then those that the searches foresee."""
    found = []
    for search, _, _, walk in groups.searches:
        foreseen = search.foresee(walk, count).clamp(0, groups.arms - 1)
        found.append(torch.cat([walk.arm[:, None], foreseen[:, 1:]], dim=1))
    return torch.cat(found) if len(found) > 1 else found[0]


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
    """Show the losses `(R, J)` of a block to the searches one after the other, and teach the bandits what was tried.

    `each` `(R,)` is how many forward passes a trial takes.
    """
    happened = torch.cat([walk_on(rows, rates, slope, arms, losses) for rows in groups.searches])
    rewards = grant(groups, running, losses)
    for rows in groups.bandits:
        teach(rows, arms, rewards, happened)
    count_trials(happened, trials, passes, each)


def walk_on(rows: Rows, rates: Tensor, slope: Tensor, arms: Tensor, losses: Tensor) -> Tensor:
    """Show a block's losses to a search; returns which of its trials happened, `(R, J)` for the search's runs.

    A run sees a loss only if it is that of the arm where its walk stands; otherwise it waits for the next block.
    """
    search, start, stop, walk = rows
    now, tried = walk, []
    for number in range(losses.shape[1]):
        arm, loss = arms[start:stop, number], losses[start:stop, number]
        here = ~now.done & (arm == now.arm)
        if search.needs_slope:
            rate = rates[start:stop].gather(1, arm.clamp(min=0)[:, None])[:, 0]
            seen = search.observe(now, loss, rate * slope[start:stop])
        else:
            seen = search.observe(now, loss)
        now = _where(here, seen, now)
        tried.append(here)
    _store(walk, now)
    return torch.stack(tried, dim=1)


def grant(groups: Groups, running: Running, losses: Tensor) -> Tensor:
    """What trials with these losses `(R, J)` have earned."""
    earned = [
        reward.grant(scale[:, None], running.before[start:stop, None], losses[start:stop])
        for reward, start, stop, scale in groups.rewards
    ]
    return torch.cat(earned) if len(earned) > 1 else earned[0]


def teach(rows: BanditRows, arms: Tensor, rewards: Tensor, happened: Tensor) -> None:
    """Tell a bandit of the trials that happened."""
    part = slice(rows.start, rows.stop)
    state = rows.part.observe(rows.state, arms[part].clamp(min=0), rewards[part], happened[part])
    _store(rows.state, state)


def count_trials(happened: Tensor, trials: Tensor, passes: Tensor, each: Tensor) -> None:
    """Add the trials of a block to what was counted before."""
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
    found = [search.choose(walk) for search, _, _, walk in groups.searches]
    chosen = torch.cat(found) if len(found) > 1 else found[0]
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
    """What is taken where a run did not search, or has gone back; and what the next step has to know about it."""
    chosen = wanted = torch.where(running.searching, chosen, running.in_force)
    if groups.guards:
        chosen = chosen.clone()
    for (guard, _), start, stop, state in groups.guards:
        part = chosen[start:stop]
        chosen[start:stop] = torch.where(part >= 0, guard.lowered(state, part.clamp(min=0), groups.row), part)
    if groups.guards:
        chosen = torch.where(running.back, -1, chosen)
    tried = running.searching & (chosen == wanted)
    for search, start, stop, _ in groups.searches:
        if not search.tries:
            tried[start:stop] = False
    taken = chosen >= 0
    running.pending.copy_(torch.where(taken & ~tried, chosen, -1))
    running.in_force.copy_(torch.where(taken, chosen, running.in_force))
    return chosen


def _where(condition: Tensor, yes: AnyWalk, no: AnyWalk) -> AnyWalk:
    """For each run the fields of one state or of the other."""
    other = arrays_of(no)
    return replaced(
        yes,
        {name: torch.where(_spread(condition, array), array, other[name]) for name, array in arrays_of(yes).items()},
    )


def _spread(condition: Tensor, array: Tensor) -> Tensor:
    """The condition `(R,)`, with as many axes as the array."""
    return condition.view(-1, *[1] * (array.dim() - 1))


def _store(kept: State, new: State) -> None:
    """Copy every field into the tensor that is kept for it."""
    values = arrays_of(new)
    for name, tensor in arrays_of(kept).items():
        tensor.copy_(values[name])
