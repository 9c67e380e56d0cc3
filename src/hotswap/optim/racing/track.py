"""The track of a race: the parts that the contest between lanes and the run of the winner both work with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from hotswap.optim.probing import Probe, StartPoint
from hotswap.optim.probing.agreement import Agreement
from hotswap.optim.probing.failures import is_of_the_rate
from hotswap.optim.probing.moves.shards import local
from hotswap.optim.racing.bases import Bases
from hotswap.optim.racing.course import Course
from hotswap.races import Schedule

__all__ = ["LOOK", "Track"]

LOOK = 10
"""Every so many steps the winner's loss is read, and several processes agree on which lanes have diverged."""


@dataclass(frozen=True, eq=False)
class Track:
    """The model with its optimizers, on which one lane at a time is trained, and the memory of the race."""

    probe: Probe
    """Evaluates the closure and takes steps for the lane that is on the track."""
    bases: Bases
    course: Course
    schedule: Schedule
    agreement: Agreement
    """Of the processes that train together."""
    module: nn.Module | None = None
    offload: bool = False
    """Whether waiting lanes are kept in the host's memory."""

    @property
    def base(self) -> Optimizer:
        """The optimizer of the lane that is on the track; between steps, the leader's."""
        return self.probe.base

    def factor(self) -> float:
        """The factor by which the rates of all lanes are multiplied in this step."""
        course = self.course
        factor = self.schedule.factor(course.step, course.begun)
        if course.restarts or course.halvings:
            factor *= 0.1**course.restarts * 0.5**course.halvings
        return factor

    def scale(self) -> float:
        """The factor by which the user, or a scheduler, has multiplied the rate of the first parameter group."""
        return self.probe.move.scale(self.base.param_groups[0])

    def may_have_diverged(self, error: Exception) -> bool:
        """Whether a gradient pass may have raised because its lane has diverged, see `is_of_the_rate`.

        In the first step all lanes have the weights of the start, so it is the closure's own error. With several
        processes the error is always passed on: a process that left one lane's pass would wait for the gradients of the
        next lane, while the others wait for those of this one.
        """
        course = self.course
        return course.step != course.begun and not self.agreement.active() and is_of_the_rate(error)

    def weights_are_finite(self) -> bool:
        """Whether no weight of the lane on the track is NaN or infinite."""
        return all(bool(local(parameter).isfinite().all()) for parameter in self.probe.parameters())

    def failed_pass(self) -> StartPoint:
        """Stands for a gradient pass that raised: its loss is NaN."""
        device = local(self.probe.parameters()[0]).device
        return StartPoint(torch.tensor(math.nan, device=device), math.nan, None)
