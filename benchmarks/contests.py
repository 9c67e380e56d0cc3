"""Races that `hotswap.Race` does not run: a finer grid around the winner, other rankings.

A contest of settings that a race has takes a race's decisions, and ends with its weights, so that what a variant gains
or loses is the variant's own. Lanes that diverge are out; a contest does not begin again, and its winner does not go
back.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.bench.workloads import Task
from hotswap.races import FIRST, ROUNDS, Round, Schedule, highest_loss, plan_rounds, ranked, typical

__all__ = ["Contest", "close", "fitted", "plain"]

LEAST = 20

Base = Callable[[list[nn.Parameter]], Optimizer]
Ranking = Callable[[Sequence[Sequence[float]], Round, float], list[int]]
"""`rank(losses, round, start)`: the places of lanes, best first, from all losses of each and the loss at the start.
Lanes come from the largest rate on."""


def _means(losses: Sequence[Sequence[float]], now: Round) -> list[float]:
    return [sum(lane[now.judged_from : now.end]) / (now.end - now.judged_from) for lane in losses]


def plain(losses: Sequence[Sequence[float]], now: Round, _: float) -> list[int]:
    """As a race does: by the mean over the last third of a round."""
    return ranked(_means(losses, now))


def fitted(losses: Sequence[Sequence[float]], now: Round, _: float) -> list[int]:
    """By where the loss will be after twice as many steps, on a line through the last two thirds over log(steps)."""
    begin = now.begin + (now.end - now.begin) // 3
    x = torch.arange(begin, now.end, dtype=torch.float64).add(1).log()
    middle = x.mean()
    weights = (x - middle) / (x - middle).square().sum().clamp(min=1e-12)
    found = []
    for lane in losses:
        y = torch.tensor(lane[begin : now.end], dtype=torch.float64)
        found.append((y.mean() + (weights * y).sum() * (math.log(2 * now.end) - middle)).item())
    return ranked(found)


def close(share: float) -> Ranking:
    """Where lanes are within a share of what the best has gained since the start, the one with the largest rate."""

    def rank(losses: Sequence[Sequence[float]], now: Round, start: float) -> list[int]:
        means = _means(losses, now)
        order = ranked(means)
        most = means[order[0]] + share * abs(start - means[order[0]])
        return sorted(order, key=lambda place: (0.0, place) if means[place] <= most else (1.0, means[place]))

    return rank


@dataclass(eq=False)
class Lane:
    """A copy of the run: its optimizer, of the model's own parameters, and tensors of its own."""

    base: int
    rate: float
    optimizer: Optimizer
    tensors: list[Tensor]
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Contest:
    """The settings of one.

    lanes: pairs of a place in `bases` and of a rate, from large to small rates.
    split: of each lane that stays after the last but one round, the factors of its rate for lanes of the last round.
    nudge: by what the winner's rate is multiplied.
    """

    bases: tuple[Base, ...]
    lanes: tuple[tuple[int, float], ...]
    rounds: tuple[tuple[float, int], ...] = ROUNDS
    rank: Ranking = plain
    split: tuple[float, ...] = ()
    nudge: float = 1.0

    def plan(self, steps: int) -> list[Round]:
        """Its rounds, as a race has them, except that a split lets the last round keep no fewer than the one before."""
        falling = [(end, len(self.rounds) - place) for place, (end, _) in enumerate(self.rounds)]
        planned = plan_rounds(falling, len(self.rounds) + 1, steps, LEAST)
        return [one._replace(keep=keep) for one, (_, keep) in zip(planned, self.rounds, strict=True)]

    def cost(self, steps: int) -> int:
        """The passes of so many steps."""
        passes, lanes, rounds = steps, len(self.lanes), self.plan(steps)
        for place, one in enumerate(rounds):
            passes += (one.end - one.begin) * (lanes - 1)
            lanes = one.keep * (len(self.split) if self.split and place == len(rounds) - 2 else 1)
        return passes

    def run(self, task: Task, steps: int) -> tuple[int, str]:
        """Train the task's model; returns the passes, and what has won."""
        return _Course(self, task, steps).run()


class _Course:
    """A contest as it goes."""

    def __init__(self, contest: Contest, task: Task, steps: int) -> None:
        self.contest, self.task, self.steps = contest, task, steps
        self.parameters = list(task.model.parameters())
        self.track = [*self.parameters, *task.model.buffers()]
        here = self.parameters[0].device
        self.generators = [torch.default_generator]
        if here.type == "cuda":
            self.generators.append(torch.cuda.default_generators[here.index or 0])
        self.schedule = Schedule(steps)
        self.early: list[float] = []
        self.rounds = contest.plan(steps)
        self.lanes = [
            Lane(base, rate, contest.bases[base](self.parameters), self.copies()) for base, rate in contest.lanes
        ]
        self.passes = 0
        self.on_track: Lane | None = None

    def copies(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self.track]

    @torch.no_grad()
    def enter(self, lane: Lane) -> None:
        if self.on_track is lane:
            return
        if self.on_track is not None:
            for kept, here in zip(self.on_track.tensors, self.track, strict=True):
                kept.copy_(here)
        for kept, here in zip(lane.tensors, self.track, strict=True):
            here.copy_(kept)
        self.on_track = lane

    def run(self) -> tuple[int, str]:
        for step, batch in enumerate(islice(self.task.minibatches(), self.steps)):
            racing = len(self.lanes) > 1 or bool(self.rounds)
            numbers = [one.get_state() for one in self.generators] if racing else []
            losses = []
            for lane in self.lanes:
                self.enter(lane)
                for generator, state in zip(self.generators, numbers, strict=False):
                    generator.set_state(state)  # all lanes draw the same
                losses.append(self.step_of(lane, step, batch))
            self.passes += len(self.lanes)
            if racing:
                for lane, loss in zip(self.lanes, torch.stack(losses).tolist(), strict=True):
                    lane.losses.append(loss)
                self.decide(step + 1)
        won = self.lanes[0]
        self.enter(won)
        return self.passes, f"base={won.base} lr={won.rate:.4g}"

    def step_of(self, lane: Lane, step: int, batch: tuple[Tensor, Tensor]) -> Tensor:
        factor = self.schedule.factor(step)
        for group in lane.optimizer.param_groups:
            group["lr"] = lane.rate * factor
        lane.optimizer.zero_grad()
        loss = self.task.loss(batch)
        loss.backward()
        lane.optimizer.step()
        return loss.detach()

    def decide(self, done: int) -> None:
        if done <= FIRST:
            self.early.append(typical(lane.losses[-1] for lane in self.lanes))
        self.lanes = [lane for lane in self.lanes if math.isfinite(lane.losses[-1])]
        now = self.rounds[0]
        if done < now.end:
            return
        self.rounds = self.rounds[1:]
        highest, means = highest_loss(self.early), _means([lane.losses for lane in self.lanes], now)
        left = [lane for lane, mean in zip(self.lanes, means, strict=True) if mean <= highest]
        order = self.contest.rank([lane.losses for lane in left], now, sum(self.early) / len(self.early))
        self.lanes = [left[place] for place in sorted(order[: now.keep])]
        if self.contest.split and len(self.rounds) == 1:
            self.lanes = [part for lane in self.lanes for part in self.split(lane)]
        if not self.rounds:
            self.lanes[0].rate *= self.contest.nudge

    def split(self, lane: Lane) -> list[Lane]:
        """Lanes with other rates, from the state of this one."""
        self.enter(lane)
        parts = []
        for factor in self.contest.split:
            optimizer = self.contest.bases[lane.base](self.parameters)
            optimizer.load_state_dict(copy.deepcopy(lane.optimizer.state_dict()))
            parts.append(Lane(lane.base, lane.rate * factor, optimizer, self.copies(), list(lane.losses)))
        self.on_track = None
        return parts
