"""Races of R runs at a time: each lane of each run is a row of θ.

The rounds, the schedule and the ranking are those of `hotswap.races`, as the optimizer's, `hotswap.Race`, are. The rows
lie lane by lane, row `place · R + run`, so that the lanes that stay after a round can be moved together to the first
rows: there is a program for each number of lanes, and those that are out cost nothing. The host learns the losses when
a round ends, and not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from hotswap.ensemble.kernels import fused
from hotswap.ensemble.model import Model
from hotswap.ensemble.updates.base import Update
from hotswap.ensemble.updates.elementwise import UpdateRule
from hotswap.races import FIRST, ROUNDS, Round, Schedule, highest_loss, nearest, plan_rounds, ranked, typical

__all__ = ["Raced"]

OWN_RATE = 1e-3
"""Of Adam in torch: the lane whose rate is nearest leads before any was judged, as in a `Race` around it."""


class Standing(NamedTuple):
    """Where the lanes of all runs stand. L lanes lie in places, by their numbers: from the largest rate on."""

    lane: Tensor
    """`(L, R)` the number of the lane in a place."""
    alive: Tensor
    """`(L, R)` whether it is racing; one that is out may still have a place, which is then called empty."""
    total: Tensor
    """`(L, R)` the sum of the losses by which it will be judged at the end of the round."""
    early: Tensor
    """`(FIRST, L, R)` the losses of the first steps, NaN of lanes that were out. A lane that moves to another place
    leaves its own behind."""
    leader: Tensor
    """`(R,)` the place of the lane that stands for the run."""

    def first(self, lanes: int) -> Standing:
        """The same of the first places only: the very memory."""
        return Standing(self.lane[:lanes], self.alive[:lanes], self.total[:lanes], self.early[:, :lanes], self.leader)

    def leaders(self, values: Tensor) -> Tensor:
        """Of values `(L, R)` those of the leaders, `(R,)`."""
        place = self.leader.clamp(max=len(values) - 1)  # a piece for fewer lanes may be run before there are so few
        return values.gather(0, place[None])[0]


class Course(NamedTuple):
    """What is known of all steps beforehand."""

    rates: Tensor
    """`(K,)` of the lanes, by their numbers."""
    factors: Tensor
    """By what the rates of each step are multiplied; at the end that of all steps there may be beyond."""
    judged: Tensor
    """Whether lanes are judged by the losses of a step."""


class Raced(Update):
    """Lets the runs race, lane against lane, each with a rate of its own, and goes on with the best of each.

    All lanes of a run take the same minibatches. What is tallied of a run is its leader's: the best when lanes were
    last compared. `passes` are those of all lanes that are racing, three for each step of a lane; `arms`, in how many
    steps each lane was racing.

    Divergence is data, here: a race of which no lane is left does not begin again, as `hotswap.Race` does, but goes on
    with its leader as it is; nor does a winner go back that diverges.

    theta: all runs once for each lane, `(K · R, P)`, lane by lane.
    rule, slots, values: see `Elementwise`; the value `lr` is the race's.
    rates: of the K lanes, from large to small.
    epochs: how long the runs are, on which rounds and schedule depend.
    rounds, least, warmup, decay: see `hotswap.Race`.
    """

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        rule: UpdateRule,
        slots: Sequence[str],
        values: Mapping[str, float],
        *,
        rates: Sequence[float],
        epochs: int,
        rounds: Sequence[tuple[float, int]] = ROUNDS,
        least: int = 20,
        warmup: float | None = 0.01,
        decay: float | None = 0.4,
    ) -> None:
        lanes, device = len(rates), theta.device
        if len(theta) % lanes:
            raise ValueError(f"θ must have all runs once for each of the {lanes} lanes, but it has {len(theta)} rows")
        self.runs = len(theta) // lanes
        super().__init__(model, theta, sums=("mean_lr",), arms=lanes, runs=self.runs)
        self.tally.totals["passes"] = torch.zeros(self.runs, dtype=torch.float64, device=device)
        self.rule, self.values, self.epochs = rule, values, epochs
        self._settings = (rounds, least, warmup, decay)
        self.rates = tuple(rates)
        self.slots = {name: torch.zeros_like(theta) for name in slots}
        self._all = theta
        self._moved = [theta, *self.slots.values(), *model.begin(theta).values()]  # what has a row for each lane
        none = torch.zeros(lanes, self.runs, dtype=torch.float64, device=device)
        self.standing = Standing(
            lane=torch.arange(lanes, device=device)[:, None].repeat(1, self.runs),
            alive=none == 0,
            total=none,
            early=torch.full((FIRST, lanes, self.runs), math.nan, dtype=torch.float64, device=device),
            leader=torch.full((self.runs,), nearest(rates, OWN_RATE), device=device),
        )
        self.lanes = lanes
        """How many places there still are."""
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        """Of steps so far, on the device; `done` is the same on the host."""
        self.done = 0

    def begin(self, steps: int) -> None:
        """See `Update.begin`.

        Raises:
            SettingError: There are too few steps for the rounds.
        """
        rounds, least, warmup, decay = self._settings
        self.steps, total = steps, self.epochs * steps
        self.rounds = {one.end: one for one in plan_rounds(rounds, len(self.rates), total, least)}
        schedule, device = Schedule(total, warmup, decay), self.theta.device
        factors = [schedule.factor(step) for step in range(total + 1)]
        judged = torch.zeros(total + 1, dtype=torch.bool)
        for one in self.rounds.values():
            judged[one.judged_from : one.end] = True
        self.course = Course(
            rates=torch.tensor(self.rates, dtype=torch.float64, device=device),
            factors=torch.tensor(factors, dtype=torch.float64, device=device),
            judged=judged.to(device),
        )
        self.openings = frozenset(self.parts())

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """See `Update.begin_epoch`."""
        super().begin_epoch(epoch, watched=watched)
        self.done = epoch * self.steps
        self.number.fill_(self.done)

    def rows(self) -> Tensor:
        """See `Update.rows`: those of the leaders."""
        return self.standing.leader * self.runs + torch.arange(self.runs, device=self.theta.device)

    # --- a step -------------------------------------------------------------------------------------------------------

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {
            _name(lanes, watched): partial(self._step, lanes, watched)
            for lanes in (len(self.rates), *(one.keep for one in self.rounds.values()))
            for watched in (False, True)
        }

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run(_name(self.lanes, self.watched))
        self.done += 1
        if self.done in self.rounds:
            self._end_round(self.rounds[self.done])

    def _step(self, lanes: int, watched: bool, x: Tensor, y: Tensor) -> None:
        rows, standing = lanes * self.runs, self.standing.first(lanes)
        theta = self._all[:rows]
        loss, direction, _ = self.model.gradient(theta, x, y)
        if watched:
            norms = torch.linalg.vector_norm(direction, dim=1).view(lanes, self.runs)
            self.tally.norm += standing.leaders(norms)
            self.tally.norms += 1
        rate = fused(follow, theta)(
            standing,
            self.course,
            self.number,
            loss.double().view(lanes, self.runs),
            self.tally.sums["mean_lr"],
            self.tally.arms,
            self.tally.totals["passes"],
        )
        slots = {name: slot[:rows] for name, slot in self.slots.items()}
        values = {**self.values, "lr": rate.to(theta.dtype).view(rows, 1)}
        fused(self.rule, theta)(theta, direction, slots, values, self.number[0].double())

    # --- who stays ----------------------------------------------------------------------------------------------------

    def _end_round(self, now: Round) -> None:
        """Keep the best lanes of each run: in the first places, and still by their numbers."""
        standing = self.standing.first(self.lanes)
        means = standing.total.div(now.end - now.judged_from).where(standing.alive, math.nan).T.tolist()
        early = self.standing.early[: min(now.end, FIRST)].movedim(2, 0).tolist()
        places, stay, leaders = [], [], []
        for losses, first, leader in zip(means, early, standing.leader.tolist(), strict=True):
            best = ranked(losses, highest_loss([typical(step) for step in first]))[: now.keep] or [leader]
            out = [place for place in range(self.lanes) if place not in best]
            kept = sorted([*best, *out[: now.keep - len(best)]])  # a race that has lost too many keeps empty places
            places.append(kept)
            stay.append([place in best for place in kept])
            leaders.append(kept.index(best[0]))
        standing.leader.copy_(torch.tensor(leaders))
        self._keep(torch.tensor(places).T.to(standing.lane), torch.tensor(stay).T.to(standing.alive))

    def _keep(self, places: Tensor, stay: Tensor) -> None:
        """Move lanes from these places `(L, R)` to the first ones."""
        standing, kept = self.standing.first(self.lanes), self.standing.first(len(places))
        kept.lane.copy_(standing.lane.gather(0, places))
        kept.alive.copy_(standing.alive.gather(0, places) & stay)
        kept.total.zero_()
        rows = (places * self.runs + torch.arange(self.runs, device=places.device)).flatten()
        for tensor in self._moved:
            tensor[: len(rows)] = tensor.index_select(0, rows)
        self._show(len(places))

    def _show(self, lanes: int) -> None:
        self.lanes, self.theta = lanes, self._all[: lanes * self.runs]

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`: of the lanes that are left, `(R, L, ...)` each."""
        lane, alive, total, _, leader = self.standing.first(self.lanes)
        found = {"lane": lane.T, "alive": alive.T, "total": total.T, "leader": leader}
        found |= {"early": self.standing.early.movedim(2, 0), "passes": self.tally.totals["passes"]}
        weights = {"theta": self._all, **{f"slot/{name}": slot for name, slot in self.slots.items()}}
        for name, tensor in weights.items():
            found[name] = tensor[: lane.numel()].view(self.lanes, self.runs, -1).transpose(0, 1)
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Update.restore`; there are as many lanes afterwards as the snapshot has."""
        if "lane" in tensors and tensors["lane"].shape[1] <= len(self.rates):
            self._show(tensors["lane"].shape[1])
        super().restore(tensors)


def follow(
    standing: Standing,
    course: Course,
    number: Tensor,
    loss: Tensor,
    rate_sum: Tensor,
    arm_counts: Tensor,
    passes: Tensor,
) -> Tensor:
    """What follows from the losses `(L, R)` of step number `number` `(1,)`: what is tallied, and who is out.

    Returns the rates of the lanes, `(L, R)`. All else is written in place; the number becomes that of the next step.
    """
    racing, now = standing.alive, number.clamp(max=len(course.factors) - 1)
    rate = course.rates[standing.lane] * course.factors.index_select(0, now)
    arms = torch.arange(arm_counts.shape[1], device=loss.device)
    arm_counts += ((standing.lane[..., None] == arms) & racing[..., None]).sum(0)
    passes += 3 * racing.sum(0)  # a backward counts as two
    rate_sum += standing.leaders(rate)
    standing.total.add_(torch.where(course.judged.index_select(0, now), loss, 0.0))
    first = torch.arange(FIRST, device=loss.device)[:, None, None] == number
    standing.early.copy_(torch.where(first & racing, loss, standing.early))
    racing.logical_and_(loss.isfinite())
    judged = torch.where(racing, loss, math.inf)
    # Not `racing.any(0)`: compiled for any number of lanes, it is an int8, which Triton will not take as a condition.
    some = judged.amin(0) < math.inf
    out = ~standing.leaders(racing) & some  # the best of the others leads where the leader is
    standing.leader.copy_(torch.where(out, judged.argmin(0), standing.leader))
    number += 1
    return rate


def _name(lanes: int, watched: bool) -> str:
    return f"{'watched step' if watched else 'step'} of {lanes} lanes"
