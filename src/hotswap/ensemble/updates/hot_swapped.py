"""Hot-swapped gradient descent: the same bandit, search and reward as the optimizer's, for R runs at a time.

A step reads one thing back from the device: whether every run's walk has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hotswap.arms import Arms
from hotswap.bandits import Bandit
from hotswap.ensemble.kernels import fused, side_by_side
from hotswap.ensemble.model import Along, Gradient, Model
from hotswap.ensemble.updates.base import Update
from hotswap.ensemble.updates.decisions import (
    BanditRows,
    Groups,
    Rows,
    Running,
    advance,
    begin_walks,
    consult,
    count_trials,
    grant,
    look_ahead,
    open_step,
    settle,
    take,
    teach,
    walk_on,
)
from hotswap.ensemble.updates.directions import Direction, turn
from hotswap.ensemble.updates.variants import ArmTables, Variant, shared
from hotswap.errors import SettingError
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Search
from hotswap.searches.base import MOST_TRIALS, refuse_endless
from hotswap.states import State, arrays_of, replaced

__all__ = ["HotSwapped"]

FEW = 16  # runs: where there are more, those whose walks are not over after the first block are gathered
FEW_BLOCK = (4, 8)
PIECES = 4  # bandits and searches: where there are more, each is a program of its own, and they run side by side
MANY_BLOCK = (3, 15)  # so that a walk over 33 arms, which one run of many makes in most steps, takes three blocks


class Directed(NamedTuple):
    """Runs with the same base optimizer, and what it remembers of them."""

    direction: Direction
    start: int
    stop: int
    slots: dict[str, Tensor]


class HotSwapped(Update):
    """Gradient descent whose rate a bandit proposes and a search settles at every step, for each run its own.

    Several arms are evaluated at once, those that the search foresees: first `block[0]` of them, and `block[1]` each
    time that some run has to go on. Arms to which a walk does not come are neither rewarded nor counted, so every run
    takes the decisions it would take alone, one trial after the other. A walk ends soon, or near the end of the grid
    where nothing helps: so the first block is small and the others are not.

    rates: the learning rate of each arm, large to small.
    seeds: one for each run, for a bandit that draws random numbers.
    block: how many arms are evaluated at once, first and later; None for what suits the number of runs.
    """

    openings = frozenset({"begin"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        rates: Sequence[float],
        bandit: Bandit,
        search: Search,
        reward: Reward | None = None,
        seeds: Sequence[int] | None = None,
        block: tuple[int, int] | None = None,
    ) -> None:
        variant = Variant(Arms.of({"lr": rates}), bandit, search, LogReduction() if reward is None else reward)
        self._set_up(model, theta, [(variant, len(theta))], seeds, block)

    @classmethod
    def together(
        cls,
        model: Model,
        theta: Tensor,
        variants: Sequence[tuple[Variant, int]],
        seeds: Sequence[int] | None = None,
        block: tuple[int, int] | None = None,
    ) -> HotSwapped:
        """Runs of several variants, so many of each, in the order of the rows of `theta`."""
        update = cls.__new__(cls)
        update._set_up(model, theta, variants, seeds, block)
        return update

    def _set_up(
        self,
        model: Model,
        theta: Tensor,
        variants: Sequence[tuple[Variant, int]],
        seeds: Sequence[int] | None,
        block: tuple[int, int] | None,
    ) -> None:
        first = variants[0][0]
        if len({variant.kind() for variant, _ in variants}) > 1:
            raise SettingError(
                "HotSwapped: these variants cannot be trained together; they must have equally many arms, and all or "
                "none of them several hyperparameters or the next minibatch."
            )
        runs, device, count = len(theta), theta.device, len(first.arms)
        super().__init__(model, theta, sums=("mean_lr", "trials"), arms=count)
        self.tally.totals["passes"] = torch.zeros(runs, dtype=torch.float64, device=device)
        seeds = [0] * runs if seeds is None else seeds
        self.block, self.count = block or (FEW_BLOCK if runs <= FEW else MANY_BLOCK), count
        self.several, self.looks_ahead = first.several, first.next_weight > 0
        self.tables = ArmTables.of(variants, device)
        self.running = Running.start(runs, count, device)
        self.groups = Groups(
            arms=count,
            row=first.arms.row,
            untried=any(variant.untried or variant.guard is not None for variant, _ in variants),
            bandits=[
                BanditRows(part[0], start, stop, self._first_state(part[0], seeds[start:stop]), *part[1:])
                for part, start, stop in shared(variants, _asked_of_bandit)
            ],
            searches=[
                Rows(search, start, stop, self._first_walk(search, start, stop))
                for search, start, stop in shared(variants, lambda v: v.search)
            ],
            rewards=[
                Rows(reward, start, stop, reward.start(stop - start, device))
                for reward, start, stop in shared(variants, lambda v: v.reward)
            ],
            paces=[
                Rows(pace, start, stop, _separate(pace.start(stop - start, device)))
                for pace, start, stop in shared(variants, lambda v: v.pace)
                if not pace.always
            ],
            guards=[
                Rows(both, start, stop, _separate(both[0].start(stop - start, device)))
                for both, start, stop in shared(variants, lambda v: None if v.guard is None else (v.guard, v.reward))
                if both is not None
            ],
        )
        self.kept = [theta[rows.start : rows.stop].clone() for rows in self.groups.guards]
        self.directions = [
            Directed(direction, start, stop, {name: torch.zeros_like(theta[start:stop]) for name in direction.slots})
            for direction, start, stop in shared(variants, lambda v: v.direction)
        ]
        self.needs_slopes = any(variant.direction.slots or variant.search.needs_slope for variant, _ in variants)
        if any(variant.guard is not None and variant.direction.slots for variant, _ in variants):
            raise SettingError("HotSwapped: a guard goes with plain gradients, here; leave out one of the two.")
        self.number = torch.zeros((), dtype=torch.float64, device=device)
        self.velocity = torch.zeros_like(theta) if self.several else None
        self.next_weight = torch.tensor(
            [variant.next_weight for variant, runs in variants for _ in range(runs)], dtype=torch.float64, device=device
        )
        both = (self.next_weight > 0) & (self.next_weight < 1)
        self.each = 1.0 + both  # forward passes of a trial
        self.slope, self.norms = torch.zeros(2, runs, dtype=torch.float64, device=device).unbind()
        self.at: Gradient | None = None
        self.ahead: Gradient | None = None
        self.beside: tuple[Any, ...] = ()
        self.in_pieces = len(self.groups.bandits) + len(self.groups.searches) > PIECES
        self.all_done = torch.zeros((), dtype=torch.bool, pin_memory=theta.is_cuda)  # in the host's memory

    def _first_state(self, bandit: Bandit, seeds: Sequence[int]) -> State:
        return _separate(bandit.begin(len(seeds), self.count, self.theta.device, seeds))

    def _first_walk(self, search: Search, start: int, stop: int) -> Any:
        none = torch.zeros(stop - start, dtype=torch.float64, device=self.theta.device)
        return _separate(search.begin(none.long(), none, arms=self.count))

    @property
    def learned(self) -> State:
        """The state of the bandit; of the first one, where there are several."""
        return self.groups.bandits[0].state

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"begin": self._begin, "more": self._more, "end": self._end}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("begin")
        blocks = 1
        most = MOST_TRIALS * self.count * (1 + len(self.theta) // FEW)  # each block is a trial of some run, or more
        while not self._ended():
            if blocks >= most:
                refuse_endless(self.groups.searches[0].part, blocks)
            run("more")
            blocks += 1
        run("end")

    def _ended(self) -> bool:
        """Whether every walk has: the answer was sent with the trials, and has only to be waited for."""
        if self.theta.is_cuda:
            torch.cuda.current_stream(self.theta.device).synchronize()
        return bool(self.all_done)

    # --- the pieces of a step -----------------------------------------------------------------------------------------

    def _begin(self, x: Tensor, y: Tensor) -> None:
        gradient = self.model.gradient(self.theta, x, y)
        self._turn(gradient.direction)
        self.at = self.model.before_trials(gradient, x)  # kept: the other pieces of the step read it where it lies
        loss = to_beat = gradient.loss.double()
        if self.several:
            assert self.velocity is not None
            self.beside = (self.model.beside(self.velocity, x),)
        if self.looks_ahead:
            to_beat = self._look_ahead_from_start(loss)
        self._open(loss, to_beat)
        self._guard()
        self._try(self.block[0], x, y)

    def _open(self, loss: Tensor, to_beat: Tensor) -> None:
        groups, running, theta = self.groups, self.running, self.theta
        if not self.in_pieces:
            fused(open_step, theta)(groups, running, loss, to_beat)
            return
        if groups.untried:
            fused(settle, theta)(groups, running, loss)
        side_by_side([partial(fused(consult, theta), rows, running) for rows in groups.bandits], theta.device)
        fused(begin_walks, theta)(groups, running, loss, to_beat)

    def _advance(self, arms: Tensor, losses: Tensor) -> None:
        groups, running, theta, rates, slope = self.groups, self.running, self.theta, self.tables.rate, self.slope
        trials, passes = self.tally.sums["trials"], self.tally.totals["passes"]
        if not self.in_pieces:
            fused(advance, theta)(groups, running, rates, slope, arms, losses, trials, passes, self.each)
            return
        walks = [partial(fused(walk_on, theta), rows, rates, slope, arms, losses) for rows in groups.searches]
        *shown, rewards = side_by_side([*walks, partial(fused(grant, theta), groups, running, losses)], theta.device)
        happened = torch.cat(shown)
        lessons = [partial(fused(teach, theta), rows, arms, rewards, happened) for rows in groups.bandits]
        counted = partial(fused(count_trials, theta), happened, trials, passes, self.each)
        side_by_side([*lessons, counted], theta.device)

    def _turn(self, direction: Tensor) -> None:
        """Let the base optimizers turn gradients into directions, in place, and note slopes and norms."""
        if not self.needs_slopes:
            return
        self.number += 1
        for base, start, stop, slots in self.directions:
            rows = slice(start, stop)
            if slots:
                fused(turn, self.theta)(base, direction[rows], slots, self.number, self.slope[rows], self.norms[rows])
            else:
                self.norms[rows] = torch.linalg.vector_norm(direction[rows], dim=1)
                self.slope[rows] = self.norms[rows].square()

    def _look_ahead_from_start(self, loss: Tensor) -> Tensor:
        """What trials have to beat, where the next minibatch has a say: its loss at the start point counts, too."""
        assert self.at is not None
        x, y = self.next_minibatch
        self.ahead = self.model.elsewhere(self.theta, self.at, x)
        if self.several:
            assert self.velocity is not None
            self.beside = (*self.beside, self.model.beside(self.velocity, x))
        none = torch.zeros_like(self.tables.rate[:, :1])
        other = self.model.trials(self.theta, self.ahead, none, x, y).double()[:, 0]
        self.tally.totals["passes"] += 1
        return torch.lerp(loss, other, self.next_weight)

    def _guard(self) -> None:
        """Go back to snapshots, and take new ones, as the guards have said."""
        running = self.running
        for kept, rows in zip(self.kept, self.groups.guards, strict=True):
            theta = self.theta[rows.start : rows.stop]
            back = running.back[rows.start : rows.stop, None]
            keep = running.keep[rows.start : rows.stop, None]
            theta.copy_(torch.where(back, kept, theta))
            kept.copy_(torch.where(keep, theta, kept))

    def _more(self, x: Tensor, y: Tensor) -> None:
        self._try(self.block[1], x, y, gathered=len(self.theta) > FEW)

    def _try(self, count: int, x: Tensor, y: Tensor, *, gathered: bool = False) -> None:
        """Evaluate a block of arms, for all runs or for some whose walks are not over, and let walks go on by it."""
        assert self.at is not None  # a step begins before it goes on
        arms = fused(look_ahead, self.theta)(self.groups, count)
        if gathered:
            done = torch.cat([rows.state.done for rows in self.groups.searches])
            chosen = torch.topk((~done).to(torch.uint8), FEW).indices
            some = arms.index_select(0, chosen)
            losses = self._losses(some, x, y, chosen)
            arms = torch.full_like(arms, -1).index_copy_(0, chosen, some)  # no walk stands at −1
            losses = losses.new_zeros(arms.shape).index_copy_(0, chosen, losses)
        else:
            losses = self._losses(arms, x, y)
        self._advance(arms, losses)
        done = torch.cat([rows.state.done for rows in self.groups.searches])
        self.all_done.copy_(done.all(), non_blocking=True)

    def _losses(self, arms: Tensor, x: Tensor, y: Tensor, rows: Tensor | None = None) -> Tensor:
        """The losses `(R, J)` of arms `(R, J)` that judge them, float64; for the runs in these rows only, if given."""
        tables = self.tables if rows is None else ArmTables(*(table[rows] for table in self.tables))
        rate = tables.rate.gather(1, arms)
        more: dict[str, Any] = {}
        if self.several:
            more["shrink"] = rate * tables.decay.gather(1, arms)
        losses = []
        minibatches = [(self.at, x, y), *([(self.ahead, *self.next_minibatch)] if self.looks_ahead else [])]
        for place, (at, inputs, labels) in enumerate(minibatches):
            assert at is not None
            if self.several:
                assert self.velocity is not None
                drag = rate * tables.momentum.gather(1, arms)
                more["along"] = Along(self.velocity, drag, self.beside[place])
            losses.append(self.model.trials(self.theta, at, rate, inputs, labels, rows=rows, **more).double())
        if not self.looks_ahead:
            return losses[0]
        weight = self.next_weight if rows is None else self.next_weight[rows]
        return torch.lerp(losses[0], losses[1], weight[:, None])

    def _end(self, x: Tensor, y: Tensor) -> None:
        assert self.at is not None  # a step begins before it ends
        tally = self.tally
        fused(take, self.theta)(
            self.groups,
            self.running,
            self.tables,
            self.theta,
            self.at.direction,
            self.velocity,
            tally.sums["mean_lr"],
            tally.arms,
            tally.totals["passes"],
            tally.norm,
            self.norms if self.needs_slopes else None,
        )
        tally.norms += 1

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`. What the paper's algorithm does not have is there only where something has it."""
        found = {"theta": self.theta, "passes": self.tally.totals["passes"]}
        found |= _named("reward_scale", [rows.state for rows in self.groups.rewards])
        found |= _named("bandit_version", [self._version(rows) for rows in self.groups.bandits])
        for kind in ("bandits", "paces", "guards"):
            states = [arrays_of(rows.state) for rows in getattr(self.groups, kind)]
            for place, arrays in enumerate(states):
                found |= {f"{_prefix(kind, place, len(states))}{name}": array for name, array in arrays.items()}
        if self.groups.untried:
            found |= {"loss": self.running.loss, "pending": self.running.pending, "in_force": self.running.in_force}
        found |= _named("kept", self.kept)
        if self.velocity is not None:
            found["velocity"] = self.velocity
        if any(rows.slots for rows in self.directions):
            found["step"] = self.number
        for place, rows in enumerate(self.directions):
            found |= {f"base/{place}/{name}": slot for name, slot in rows.slots.items()}
        return found

    @staticmethod
    def _version(rows: BanditRows) -> Tensor:
        return torch.full((rows.stop - rows.start,), rows.part.state_version, dtype=torch.int64)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Update.restore`; the bandits translate fields that another version of them has written."""
        saved = {"passes": torch.full_like(self.tally.totals["passes"], torch.nan), **tensors}  # not known of old ones
        count = len(self.groups.bandits)
        for place, rows in enumerate(self.groups.bandits):
            prefix = _prefix("bandits", place, count)
            version = _names("bandit_version", count)[place]
            fields = {name.removeprefix(prefix): saved.pop(name) for name in list(saved) if name.startswith(prefix)}
            read = rows.part.restored(rows.state, fields, int(saved[version][0]) if version in saved else 1)
            saved |= {prefix + name: array for name, array in arrays_of(read).items()}
            saved[version] = self._version(rows)
        super().restore(saved)


def _asked_of_bandit(variant: Variant) -> tuple[Bandit, bool, bool, bool]:
    """The bandit, and what it is asked; see `BanditRows`."""
    guarded = variant.guard is not None
    return variant.bandit.knowing(variant.arms), variant.untried or guarded, variant.pace.when == "unsure", guarded


def _prefix(kind: str, place: int, count: int) -> str:
    """Of the names of a part's fields in the state; with a number only where there are several such parts."""
    return f"{kind[:-1]}/" if count == 1 else f"{kind[:-1]}/{place}/"


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}/{place}" for place in range(count)]


def _named(name: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(_names(name, len(tensors)), tensors, strict=True))


def _separate(state: State) -> State:
    """The same state with a storage of its own for every field."""
    return replaced(state, {name: tensor.clone() for name, tensor in arrays_of(state).items()})
