"""Hot-swapped gradient descent: the same bandit, search and reward as the optimizer's, for R runs at a time.

A step reads one thing back from the device: whether every run's walk has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from hotswap.arms import Arms
from hotswap.bandits import Bandit
from hotswap.ensemble.kernels import fused, side_by_side
from hotswap.ensemble.model import Model
from hotswap.ensemble.updates.base import Update
from hotswap.ensemble.updates.decisions import (
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
from hotswap.ensemble.updates.directions import Directions
from hotswap.ensemble.updates.groups import BanditRows, Running, groups_of
from hotswap.ensemble.updates.trials import Trials
from hotswap.ensemble.updates.variants import Variant, shared
from hotswap.errors import SettingError
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Search
from hotswap.searches.base import MOST_TRIALS, refuse_endless
from hotswap.states import State, arrays_of

__all__ = ["HotSwapped"]

FEW = 16  # runs: where there are more, those whose walks are not over after the first block are gathered
FEW_BLOCK = (4, 8)
PIECES = 4  # bandits and searches: where there are more, each is a program of its own, and they run side by side
MANY_BLOCK = (3, 15)  # so that a walk over 33 arms, which one run of many makes in most steps, takes three blocks


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
        if any(variant.guard is not None and variant.direction.slots for variant, _ in variants):
            raise SettingError("HotSwapped: a guard goes with plain gradients, here; leave out one of the two.")
        runs, device, arms = len(theta), theta.device, len(first.arms)
        super().__init__(model, theta, sums=("mean_lr", "trials"), arms=arms)
        self.tally.totals["passes"] = torch.zeros(runs, dtype=torch.float64, device=device)
        self.block = block or (FEW_BLOCK if runs <= FEW else MANY_BLOCK)
        self.looks_ahead = first.next_weight > 0
        self.groups = groups_of(variants, [0] * runs if seeds is None else seeds, device)
        self.in_pieces = len(self.groups.bandits) + len(self.groups.searches) > PIECES
        self.running = Running.start(runs, arms, device)
        self.directions = Directions(
            shared(variants, lambda variant: variant.direction),
            theta,
            slopes=any(variant.search.needs_slope for variant, _ in variants),
        )
        self.velocity = torch.zeros_like(theta) if first.several else None
        self.trials = Trials(model, theta, variants, self.velocity)
        self.kept = [theta[rows.start : rows.stop].clone() for rows in self.groups.guards]
        self.direction = theta  # of the latest step: the pieces of a step read it where it lies
        self.all_done = torch.zeros((), dtype=torch.bool, pin_memory=theta.is_cuda)  # in the host's memory

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
        most = (
            MOST_TRIALS * self.groups.arms * (1 + len(self.theta) // FEW)
        )  # each block is a trial of some run, or more
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
        self.direction = gradient.direction
        self.directions.turn(self.direction)
        loss, to_beat = self.trials.begin(gradient, (x, y), self.next_minibatch if self.looks_ahead else None)
        self._open(loss, to_beat)
        self._guard()
        self._try(self.block[0])

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
        groups, running, theta, each = self.groups, self.running, self.theta, self.trials.passes
        rates, slope = self.trials.tables.rate, self.directions.slope
        trials, passes = self.tally.sums["trials"], self.tally.totals["passes"]
        if not self.in_pieces:
            fused(advance, theta)(groups, running, rates, slope, arms, losses, trials, passes, each)
            return
        walks = [partial(fused(walk_on, theta), rows, rates, slope, arms, losses) for rows in groups.searches]
        *shown, rewards = side_by_side([*walks, partial(fused(grant, theta), groups, running, losses)], theta.device)
        happened = torch.cat(shown)
        lessons = [partial(fused(teach, theta), rows, arms, rewards, happened) for rows in groups.bandits]
        counted = partial(fused(count_trials, theta), happened, trials, passes, each)
        side_by_side([*lessons, counted], theta.device)

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
        self._try(self.block[1], gathered=len(self.theta) > FEW)

    def _try(self, count: int, *, gathered: bool = False) -> None:
        """Evaluate a block of arms, for all runs or for some whose walks are not over, and let walks go on by it."""
        arms = fused(look_ahead, self.theta)(self.groups, count)
        if gathered:
            chosen = torch.topk((~self._done()).to(torch.uint8), FEW).indices
            some = arms.index_select(0, chosen)
            losses = self.trials.losses(some, chosen)
            arms = torch.full_like(arms, -1).index_copy_(0, chosen, some)  # no walk stands at −1
            losses = losses.new_zeros(arms.shape).index_copy_(0, chosen, losses)
        else:
            losses = self.trials.losses(arms)
        self._advance(arms, losses)
        self.all_done.copy_(self._done().all(), non_blocking=True)

    def _done(self) -> Tensor:
        return torch.cat([rows.state.done for rows in self.groups.searches])

    def _end(self, x: Tensor, y: Tensor) -> None:
        tally = self.tally
        fused(take, self.theta)(
            self.groups,
            self.running,
            self.trials.tables,
            self.theta,
            self.direction,
            self.velocity,
            tally.sums["mean_lr"],
            tally.arms,
            tally.totals["passes"],
            3.0 + self.looks_ahead,  # passes of the gradient, whose backward counts as two, and of the loss to beat
            tally.norm,
            self.directions.norm if self.directions.active else None,
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
        return found | self.directions.state()

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


def _prefix(kind: str, place: int, count: int) -> str:
    """Of the names of a part's fields in the state; with a number only where there are several such parts."""
    return f"{kind[:-1]}/" if count == 1 else f"{kind[:-1]}/{place}/"


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}/{place}" for place in range(count)]


def _named(name: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(_names(name, len(tensors)), tensors, strict=True))
