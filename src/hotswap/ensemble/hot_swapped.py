"""Hot-swapped gradient descent: the same bandits, searches and rewards as the optimizer's, for R runs at a time.

A step has three pieces, of which the second is run until every walk has ended:

    begin   The gradients. Arms that the step before took without a trial are rewarded, bandits propose arms, walks
            begin from there, and the first block of arms is tried.
    more    The next block of arms is tried.
    end     Every run moves by the arm that its search has chosen, or not at all.

A block is several arms of each run, evaluated at once: those that the searches foresee. Arms to which a walk does not
come are neither rewarded nor counted, so every run takes the decisions that it would take alone, one trial after the
other. A step reads one thing back from the device: whether every walk has ended.

`hotswap.ensemble.decisions` has the decisions of these pieces. Each of several bandits and searches is compiled to a
program of its own, and a GPU works on several programs at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hotswap.ensemble import decisions
from hotswap.ensemble.engine import Update
from hotswap.ensemble.kernels import fused, side_by_side
from hotswap.ensemble.model import Along, Gradient, Model
from hotswap.ensemble.variants import ArmTables, Direction, Group, Runs, grouped
from hotswap.errors import SettingError
from hotswap.searches.base import MOST_TRIALS, refuse_endless
from hotswap.states import State, arrays_of

__all__ = ["HotSwapped"]

FEW = 16  # runs: where there are more, those whose walks are not over after the first block are gathered
FEW_BLOCK = (4, 8)
MANY_BLOCK = (3, 15)  # so that a walk over 33 arms, which one run of many makes in most steps, takes three blocks
PIECES = 4  # bandits and searches: where there are more, each is a program of its own, and they run side by side


class HotSwapped(Update):
    """Gradient descent whose rate a bandit proposes and a search settles at every step, for each run its own.

    runs: variants and how many runs each has, in the order of the rows of `theta`.
    seeds: one for each run, for a bandit that draws random numbers.
    block: how many arms are evaluated at once, first and later; None for what suits the number of runs. A walk ends
        soon, or near the end of the grid where nothing helps: so the first block is small and the others are not.
    """

    openings = frozenset({"begin"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        runs: Runs,
        seeds: Sequence[int] | None = None,
        block: tuple[int, int] | None = None,
    ) -> None:
        first, count, device = runs[0][0], len(theta), theta.device
        if len({variant.kind() for variant, _ in runs}) > 1:
            raise SettingError(
                "HotSwapped: these variants cannot be trained together; they must have equally many arms, and all or "
                "none of them several hyperparameters or the next minibatch."
            )
        super().__init__(model, theta, sums=("mean_lr", "trials"), arms=len(first.arms))
        self.tally.totals["passes"] = torch.zeros(count, dtype=torch.float64, device=device)
        self.block = block or (FEW_BLOCK if count <= FEW else MANY_BLOCK)
        self.groups = decisions.groups_of(runs, [0] * count if seeds is None else seeds, device)
        self.in_pieces = len(self.groups.bandits) + len(self.groups.searches) > PIECES
        self.running = decisions.not_running(count, len(first.arms), device)
        self.tables = ArmTables.of(runs, device)
        self.velocity = torch.zeros_like(theta) if first.several else None  # arms over momentum bring their own
        self.all_done = torch.zeros((), dtype=torch.bool, pin_memory=theta.is_cuda)  # in the host's memory

        weights = [variant.next_weight for variant, runs_of in runs for _ in range(runs_of)]
        self.next_weight = torch.tensor(weights, dtype=torch.float64, device=device)
        self.looks_ahead = first.next_weight > 0
        self.passes = 1.0 + (self.next_weight > 0) * (self.next_weight < 1)  # forward passes that a trial takes
        self.minibatches: list[tuple[Tensor, Tensor, Gradient, Any]] = []  # minibatches that judge; see `_look_at`
        self.direction = theta  # the latest step's: the pieces of a step read it where it lies

        def empty(base: Direction, rows: slice) -> dict[str, Tensor]:
            return {name: torch.zeros_like(theta[rows]) for name in base.slots}

        self.bases = grouped(runs, lambda variant: variant.direction, empty)
        self.bases_remember = any(group.state for group in self.bases)
        self.turning = self.bases_remember or any(variant.search.needs_slope for variant, _ in runs)
        self.number = torch.zeros((), dtype=torch.float64, device=device)  # the step's number, for the bases
        self.slope, self.norm = torch.zeros(2, count, dtype=torch.float64, device=device).unbind()

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
        most = MOST_TRIALS * self.groups.arms * (1 + len(self.theta) // FEW)  # each block is a trial of some run
        while not self._ended():
            if blocks >= most:
                refuse_endless(self.groups.searches[0].part, blocks)
            run("more")
            blocks += 1
        run("end")

    def _ended(self) -> bool:
        """Whether every walk has ended. The device sent the answer with the trials; this waits for it."""
        if self.theta.is_cuda:
            torch.cuda.current_stream(self.theta.device).synchronize()
        return bool(self.all_done)

    # --- the pieces of a step -----------------------------------------------------------------------------------------

    def _begin(self, x: Tensor, y: Tensor) -> None:
        gradient = self.model.gradient(self.theta, x, y)
        self.direction = gradient.direction
        self._turn(gradient.direction)
        loss = to_beat = gradient.loss.double()
        self.minibatches = [self._look_at(x, y, self.model.before_trials(gradient, x))]
        if self.looks_ahead:
            after = self._look_at(
                *self.next_minibatch, self.model.elsewhere(self.theta, gradient, self.next_minibatch[0])
            )
            self.minibatches.append(after)
            stay = torch.zeros_like(self.tables.rate[:, :1])
            other = self.model.trials(self.theta, after[2], stay, *self.next_minibatch).double()[:, 0]
            to_beat = torch.lerp(loss, other, self.next_weight)
        self._open(loss, to_beat)
        self._try(self.block[0])

    def _more(self, x: Tensor, y: Tensor) -> None:
        self._try(self.block[1], gathered=len(self.theta) > FEW)

    def _end(self, x: Tensor, y: Tensor) -> None:
        tally = self.tally
        fused(decisions.take, self.theta)(
            self.groups,
            self.running,
            self.tables,
            self.theta,
            self.direction,
            self.velocity,
            tally.sums["mean_lr"],
            tally.arms,
            tally.totals["passes"],
            3.0 + self.looks_ahead,  # passes of the gradient, whose backward counts as two, and of the loss to beat
            tally.norm,
            self.norm if self.turning else None,
        )
        tally.norms += 1

    def _turn(self, gradient: Tensor) -> None:
        """Write directions over the gradients `(R, P)`, in place; note slopes and norms if anybody asks for them."""
        if not self.turning:
            return
        self.number += 1
        for base, rows, slots in self.bases:
            if slots:
                fused(decisions.turn, gradient)(
                    base, gradient[rows], slots, self.number, self.slope[rows], self.norm[rows]
                )
            else:
                self.norm[rows] = torch.linalg.vector_norm(gradient[rows], dim=1)
                self.slope[rows] = self.norm[rows].square()

    def _look_at(self, x: Tensor, y: Tensor, at: Gradient) -> tuple[Tensor, Tensor, Gradient, Any]:
        """A minibatch that judges trials, and what all trials on it share: of the gradient, and of the velocity."""
        return x, y, at, None if self.velocity is None else self.model.beside(self.velocity, x)

    def _open(self, loss: Tensor, to_beat: Tensor) -> None:
        groups, running, theta = self.groups, self.running, self.theta
        if not self.in_pieces:
            fused(decisions.open_step, theta)(groups, running, loss, to_beat)
            return
        if groups.untried:
            fused(decisions.settle, theta)(groups, running, loss)
        side_by_side(
            [partial(fused(decisions.consult, theta), group, running) for group in groups.bandits], theta.device
        )
        fused(decisions.begin_walks, theta)(groups, running, loss, to_beat)

    def _try(self, count: int, *, gathered: bool = False) -> None:
        """Evaluate a block of arms, for all runs or for some whose walks are not over, and let walks go on by it."""
        arms = fused(decisions.look_ahead, self.theta)(self.groups, count)
        if gathered:
            chosen = torch.topk((~self._done()).to(torch.uint8), FEW).indices
            some = arms.index_select(0, chosen)
            losses = self._losses(some, chosen)
            arms = torch.full_like(arms, -1).index_copy_(0, chosen, some)  # no walk stands at −1
            losses = losses.new_zeros(arms.shape).index_copy_(0, chosen, losses)
        else:
            losses = self._losses(arms)
        self._advance(arms, losses)
        self.all_done.copy_(self._done().all(), non_blocking=True)

    def _done(self) -> Tensor:
        return torch.cat([group.state.done for group in self.groups.searches])

    def _losses(self, arms: Tensor, rows: Tensor | None = None) -> Tensor:
        """The losses `(R, J)` of arms `(R, J)`, float64; with `rows`, of the runs in these places only."""

        def of_arms(table: Tensor) -> Tensor:
            return (table if rows is None else table[rows]).gather(1, arms)

        rate, found = of_arms(self.tables.rate), []
        for x, y, at, beside in self.minibatches:
            more: dict[str, Any] = {}
            if self.velocity is not None:  # θ′ = (1 − rate · decay) θ − rate · g − rate · momentum · v
                along = Along(self.velocity, rate * of_arms(self.tables.momentum), beside)
                more = {"shrink": rate * of_arms(self.tables.decay), "along": along}
            found.append(self.model.trials(self.theta, at, rate, x, y, rows=rows, **more).double())
        if len(found) == 1:
            return found[0]
        weight = self.next_weight if rows is None else self.next_weight[rows]
        return torch.lerp(found[0], found[1], weight[:, None])

    def _advance(self, arms: Tensor, losses: Tensor) -> None:
        groups, running, theta, rates, slope = self.groups, self.running, self.theta, self.tables.rate, self.slope
        counted = self.tally.sums["trials"], self.tally.totals["passes"], self.passes
        if not self.in_pieces:
            fused(decisions.advance, theta)(groups, running, rates, slope, arms, losses, *counted)
            return
        walks = [
            partial(fused(decisions.walk_on, theta), group, rates, slope, arms, losses) for group in groups.searches
        ]
        *shown, rewards = side_by_side(
            [*walks, partial(fused(decisions.grant, theta), groups, running, losses)], theta.device
        )
        happened = torch.cat(shown)
        lessons = [partial(fused(decisions.teach, theta), group, arms, rewards, happened) for group in groups.bandits]
        side_by_side([*lessons, partial(fused(decisions.count_trials, theta), happened, *counted)], theta.device)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`. What the paper's algorithm does not have is there only where something has it."""
        found = {"theta": self.theta, "passes": self.tally.totals["passes"]}
        found |= _numbered("reward_scale", [group.state for group in self.groups.rewards])
        found |= _numbered("bandit_version", [_version(group) for group in self.groups.bandits])
        for kind, groups in (("bandit/", self.groups.bandits), ("pace/", self.groups.paces)):
            for prefix, group in _numbered(kind, groups).items():
                found |= {f"{prefix}{name}": array for name, array in arrays_of(group.state).items()}
        if self.groups.untried:
            found |= {name: getattr(self.running, name) for name in ("loss", "pending", "in_force")}
        if self.velocity is not None:
            found["velocity"] = self.velocity
        if self.bases_remember:
            found["step"] = self.number
        for place, group in enumerate(self.bases):
            found |= {f"base/{place}/{name}": slot for name, slot in group.state.items()}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Update.restore`; the bandits translate fields that another version of them has written."""
        saved = dict(tensors)
        bandits = self.groups.bandits
        prefixes, versions = _numbered("bandit/", bandits), _numbered("bandit_version", bandits)
        for group, prefix, version in zip(bandits, prefixes, versions, strict=True):
            fields = {name.removeprefix(prefix): saved.pop(name) for name in list(saved) if name.startswith(prefix)}
            written = int(saved[version][0]) if version in saved else 1
            read = group.part[0].restored(group.state, fields, written)
            saved |= {prefix + name: array for name, array in arrays_of(read).items()}
            saved[version] = _version(group)
        super().restore(saved)


def _numbered(name: str, things: Sequence[Any]) -> dict[str, Any]:
    """Names of several things of a kind; with a number only where there is more than one: `pace/`, or `pace/0/`."""
    if len(things) == 1:
        return {name: things[0]}
    stem, slash, _ = name.partition("/")
    return {f"{stem}/{place}{slash}": thing for place, thing in enumerate(things)}


def _version(group: Group) -> Tensor:
    return torch.full((group.rows.stop - group.rows.start,), group.part[0].state_version, dtype=torch.int64)
