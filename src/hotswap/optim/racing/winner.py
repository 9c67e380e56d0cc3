"""The run of the winner, after the race: ordinary steps of its optimizer, and a way back should it diverge."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hotswap.errors import LossError
from hotswap.optim.probing import StartPoint
from hotswap.optim.probing.closures import Request
from hotswap.optim.probing.grad_mode import grad_mode
from hotswap.optim.racing.records import Brief
from hotswap.optim.racing.track import LOOK, Track
from hotswap.optim.snapshots import Snapshot
from hotswap.optim.user_warnings import warn

__all__ = ["Winner"]

MOST_HALVINGS = 10

KEEP = 200
"""Every so many steps a new snapshot is taken to go back to."""

SMOOTHING = 0.2
"""The weight of the newest loss in the running mean, which is about the mean of the last five that were read."""


class Winner:
    """Steps the lane that has won.

    Reading a loss from the device in every step would take time, so it is read in every tenth. Where its running mean
    is not finite, or far above the losses of the first steps, the run has diverged: it goes back to its latest snapshot
    and goes on with half its rate.
    """

    def __init__(self, track: Track) -> None:
        self._track = track

    def step(self, request: Request) -> StartPoint:
        """Take a step, or go back in place of it."""
        course, probe, factor = self._track.course, self._track.probe, self._track.factor()
        since = course.step - (course.won or 0)
        look = since % LOOK == 0
        with grad_mode(False):
            with probe:
                start, diverged = self._gradient_pass(request, look=look)
                if not diverged and not start.overflow:
                    if look and (course.kept is None or since % KEEP == 0):
                        course.kept = None  # its memory is free for the new one
                        course.kept = Snapshot.of(probe)
                    probe.take_untried(course.leader, factor)
            if diverged:
                self._go_back()
            self._count(factor, start.loss, start.aux, rolled_back=diverged)
        return start

    def step_without_loss(self) -> None:
        """Take a step along the gradients that are in `.grad`."""
        factor = self._track.factor()
        self._track.probe.step_without_loss(self._track.course.leader, factor)
        self._count(factor, torch.tensor(math.nan))

    def _gradient_pass(self, request: Request, *, look: bool) -> tuple[StartPoint, bool]:
        """The gradient pass, and whether the run has diverged; without a look, only an exception tells."""
        track = self._track
        try:
            start = track.probe.gradient_pass(request, trials=False, read=look)
        except Exception as error:
            if not track.may_have_diverged(error) or track.weights_are_finite():
                raise
            return track.failed_pass(), True
        return start, look and self._has_diverged(start.seen)

    def _has_diverged(self, loss: float) -> bool:
        course = self._track.course
        course.running_loss += SMOOTHING * (loss - course.running_loss)
        return not self._track.agreement.means([course.running_loss])[0] <= course.highest  # NaN, too

    def _go_back(self) -> None:
        """Restore the latest snapshot, and halve the rate."""
        course = self._track.course
        if course.kept is None or course.halvings == MOST_HALVINGS:
            raise LossError(
                f"The winner of the race has diverged {course.halvings + 1} times, with half its rate after each; look "
                "at the data and at the loss."
            )
        course.kept.restore(self._track.probe, self._track.bases.driver(course.leader).written)
        course.average.forget()  # it may have followed the run into its divergence
        course.halvings += 1
        course.running_loss = course.losses[course.leader]
        note = f"The winner had diverged by step {course.step}: it went back to its snapshot, with half its rate."
        course.notes.append(note)
        warn(note)

    def _count(self, factor: float, loss: Tensor, aux: object = None, *, rolled_back: bool = False) -> None:
        """Record the step, and let the average follow where one is kept."""
        track, course = self._track, self._track.course
        if track.schedule.total_steps is None:
            course.average.follow(track.probe.parameters())
        course.last_step = Brief(course.step, factor, course.leader, track.scale(), loss, aux, rolled_back)
        course.step, course.passes = course.step + 1, course.passes + 1
