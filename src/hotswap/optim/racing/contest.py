"""The contest: every lane takes the step, the diverged ones are dropped, and at the end of a round all but the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch.nn.parameter import is_lazy

from hotswap.errors import LossError, UnsupportedError
from hotswap.optim.probing import StartPoint, nearly_the_same
from hotswap.optim.probing.closures import Request, as_trial
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION
from hotswap.optim.probing.moves.shards import ORDINARY
from hotswap.optim.probing.moves.states import loose_entries
from hotswap.optim.racing.course import Out
from hotswap.optim.racing.lanes import Lane, watched
from hotswap.optim.racing.records import RaceStep
from hotswap.optim.racing.together import Together, Trying
from hotswap.optim.racing.track import LOOK, Track
from hotswap.optim.snapshots import Snapshot
from hotswap.optim.user_warnings import warn, warn_of_another_loss, warn_of_raising_lane
from hotswap.races import FIRST, Round, highest_loss, ranked, typical

__all__ = ["Contest"]

MOST_RESTARTS = 3

SMALL = 5_000_000
"""Up to so many parameters, the lanes of a network may be faster as one program."""


class Contest:
    """Steps all lanes until one is left. What it knows from step to step is in the track's `course`."""

    def __init__(self, track: Track, rounds: Sequence[Round]) -> None:
        self._track, self._rounds = track, rounds

    # --- a step -------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, request: Request) -> StartPoint:
        """One step of every lane, and what follows from their losses. Returns the leader's gradient pass."""
        course, probe, factor = self._track.course, self._track.probe, self._track.factor()
        probe.refuse_if_open()  # the model would be another lane
        if not course.lanes:
            self._begin()
        leader = course.lane(course.leader)
        leader.park(probe)  # with all that was done to the model since
        new = any(
            lane.lacks_weights(probe) for lane in course.order[:1]
        )  # parameters that all lanes but the leader lack
        numbers = probe.random_numbers()
        try:
            losses = {} if new else self._step_together(request, factor)
            together = bool(losses)
            failed: list[tuple[Lane, Exception]] = []
            for lane in course.order[len(losses) :]:
                if new:
                    leader.put_back(probe)  # what was thawed or added since the last step begins there in every lane
                lane.enter(probe)
                probe.draw_again(numbers)
                try:
                    start = self._step_of(lane, request, factor)
                except _LaneFailedError as failure:
                    if len(failed) == len(losses) and lane is leader and self._track.weights_are_finite():
                        raise failure.error from None  # it raises in all lanes, so it is not the rates' doing
                    failed.append((lane, failure.error))
                    start = self._track.failed_pass()
                losses[lane.number] = start.seen
                if lane is not leader:
                    lane.park(probe)
        except BaseException:
            leader.enter(probe)  # with the weights that it had before the step
            raise
        if course.trying is not None:
            course.trying.done(together=together)
        first = not course.step
        self._record(start, losses, factor)
        self._decide(losses)
        if first:
            self._check_first(start, losses)
        for lane, error in failed[:1]:
            self._warn_of_failure(lane, error, factor)
        return start

    def _step_together(self, request: Request, factor: float) -> dict[int, float]:
        """The steps of all lanes but the leader's, if they can be one program and it is faster; their losses.

        Where they cannot, the result is empty and no lane has taken a step.
        """
        course, probe, trying = self._track.course, self._track.probe, self._track.course.trying
        run = None if trying is None else trying.next()
        others = course.order[:-1]
        if trying is None or run is None or len(others) < 2 or request.closure is None:
            return {}
        try:
            passes = run(others, request.closure)
        except Exception as error:  # whatever torch's transformations have to say
            trying.failed(error)
            return {}
        for lane, (_, gradients) in zip(others, passes, strict=True):
            lane.enter(probe)
            for parameter in probe.parameters():
                parameter.grad = gradients.get(parameter)
            watched(lane, course.lanes, partial(probe.step_without_loss, lane.number, factor))
            lane.park(probe)
        return {lane.number: loss for lane, (loss, _) in zip(others, passes, strict=True)}

    def _step_of(self, lane: Lane, request: Request, factor: float) -> StartPoint:
        """The gradient pass of a lane, and the base's step along it."""
        course, probe = self._track.course, self._track.probe
        with probe:
            with as_trial(lane.number != course.leader):
                try:
                    start = probe.gradient_pass(request, trials=False, survey=True)
                except Exception as error:
                    if not self._track.may_have_diverged(error):
                        raise
                    raise _LaneFailedError(error) from error
            if not start.overflow:
                watched(lane, course.lanes, partial(probe.take_untried, lane.number, factor))
        return start

    def _record(self, start: StartPoint, losses: dict[int, float], factor: float) -> None:
        course, bases = self._track.course, self._track.bases
        scale = self._track.scale() * factor
        course.last_step = RaceStep(
            step=course.step,
            factor=factor,
            leader=course.leader,
            values={number: bases.applied(number, scale) for number in losses},
            losses=losses,
            optimizers={number: bases.driver(number).name for number in losses},
            aux=start.aux,
        )
        course.step, course.passes = course.step + 1, course.passes + len(losses)

    def _check_first(self, start: StartPoint, losses: dict[int, float]) -> None:
        """In the first step all lanes have the same weights and random numbers, so they should have the same loss."""
        other = next(
            (loss for loss in losses.values() if not nearly_the_same(loss, start.seen, start.loss.dtype)), None
        )
        if other is not None and math.isfinite(other) and math.isfinite(start.seen):
            warn_of_another_loss(start.seen, other, recorded=True, what="race")

    def _warn_of_failure(self, lane: Lane, error: Exception, factor: float) -> None:
        if self._track.probe.checks.first_time("raising lane"):
            scale = self._track.scale() * factor
            warn_of_raising_lane(self._track.bases.applied(lane.number, scale).items(), error)

    # --- who stays ----------------------------------------------------------------------------------------------------

    def _decide(self, losses: dict[int, float]) -> None:
        """Add the losses of a step to the sums; drop lanes that have diverged, and at the end of a round all but the
        best."""
        course = self._track.course
        done, now = course.step - course.begun, self._rounds[course.round]
        if done <= FIRST:
            course.early.append(typical(losses.values()))
        if done > now.judged_from:
            course.counted += 1
            for number, loss in losses.items():
                course.sums[number] = course.sums.get(number, 0.0) + loss
        if done == now.end:
            self._end_round(now)
        elif done % LOOK == 0 or not self._track.agreement.active():
            self._drop_diverged(losses)

    def _end_round(self, now: Round) -> None:
        """Rank the lanes by their mean loss, and keep as many of the best as the round says."""
        course = self._track.course
        numbers = [lane.number for lane in course.lanes]
        *means, highest = self._track.agreement.means(
            [*(course.sums[number] / course.counted for number in numbers), highest_loss(course.early)]
        )
        course.highest = highest
        course.losses |= dict(zip(numbers, means, strict=True))
        for place, mean in enumerate(means):
            if not math.isfinite(mean):
                course.out[numbers[place]] = Out(course.step, "out: its loss was not finite")
            elif mean > highest:
                course.out[numbers[place]] = Out(course.step, "out: its loss was far above that of the first steps")
        order = ranked(means, highest)
        for rank, place in enumerate(order[now.keep :], start=now.keep + 1):
            course.out[numbers[place]] = Out(course.step, f"out: {_ordinal(rank)} of {len(numbers)}")
        course.round, course.sums, course.counted = course.round + 1, {}, 0
        stay = [numbers[place] for place in order[: now.keep]]
        self._go_on_with(stay)
        if len(stay) == 1:
            self._finish()

    def _drop_diverged(self, losses: dict[int, float]) -> None:
        course = self._track.course
        numbers = list(losses)
        agreed = dict(zip(numbers, self._track.agreement.means([losses[number] for number in numbers]), strict=True))
        stay = [number for number in numbers if math.isfinite(agreed[number])]
        if len(stay) < len(numbers):
            if not stay and course.step - course.begun == 1:
                self._refuse_first_minibatch(next(iter(agreed.values())))
            for number in set(numbers) - set(stay):
                course.out[number] = Out(course.step, "out: its loss was not finite")
            first = course.leader if course.leader in stay else min(stay, key=lambda n: agreed[n], default=None)
            self._go_on_with([] if first is None else [first, *(number for number in stay if number != first)])

    def _go_on_with(self, stay: list[int]) -> None:
        """Keep these lanes, of which the first leads. With none left, the race begins again."""
        course, probe = self._track.course, self._track.probe
        if not stay:
            self._begin_again()
            return
        if course.leader != stay[0]:
            if course.leader in stay:
                course.lane(course.leader).park(probe)
            course.leader = stay[0]
            course.lane(course.leader).enter(probe)
        course.lanes = [lane for lane in course.lanes if lane.number in stay]

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the lanes: each is a copy of the model, its buffers and its optimizer's state as they are now."""
        track, course, probe = self._track, self._track.course, self._track.probe
        if any(is_lazy(parameter) for parameter in probe.parameters()):
            raise UnsupportedError(
                "Race: some parameters are not initialized yet, so that there is nothing to copy; call the model once "
                "on a minibatch before the first step."
            )
        if course.start is None:
            course.start = Snapshot.of(probe)
        course.lanes = [Lane(arm, track.bases.driver(arm), track.offload) for arm in range(len(track.bases.arms))]
        for lane in course.lanes:
            lane.written = [{} for _ in track.base.param_groups]
            lane.state.update(loose_entries(lane.driver.base.state))
            lane.park(probe)
        course.lane(course.leader).hand_over(probe)
        if track.module is not None and self._may_be_one_program():
            course.trying = Trying(Together(track.module))

    def _may_be_one_program(self) -> bool:
        """Whether lanes might be faster as one program: on a GPU, in one process, for a small network."""
        probe, parameters = self._track.probe, self._track.probe.parameters()
        whole = probe.loss_scale is None and not self._track.offload and not self._track.agreement.active()
        plain = all(type(p) in ORDINARY and p.is_cuda and p.dtype not in LOW_PRECISION for p in parameters)
        return whole and plain and sum(parameter.numel() for parameter in parameters) <= SMALL

    def _finish(self) -> None:
        """One lane is left at the end of a round: it has won, and nothing is kept of the others."""
        course = self._track.course
        course.won, course.start = course.step, None
        course.out[course.leader] = Out(course.step, "won")
        course.running_loss = course.losses[course.leader]
        winner = course.lanes[0]
        winner.weights, winner.buffers = {}, type(winner.buffers)()  # the model has them
        course.kept = Snapshot.of(self._track.probe)

    def _refuse_first_minibatch(self, loss: float) -> None:
        """Where all lanes have the weights of the start and none has a finite loss, it is not their rates' doing."""
        self._return_to_the_start()
        raise LossError(
            f"The loss of the race's first minibatch is {loss:g} at the weights that the model has, so no rate can be "
            "judged by it; look at the minibatch and at the loss. The model is as it was before the step."
        )

    def _begin_again(self) -> None:
        """All lanes have diverged: begin at the start, with rates ten times smaller."""
        course = self._track.course
        if course.restarts == MOST_RESTARTS:
            raise LossError(
                f"All lanes of the race have diverged, {MOST_RESTARTS + 1} times, and with rates "
                f"{10**MOST_RESTARTS:,} times smaller than those it began with: look at the data and at the loss, or "
                "give smaller rates in arms."
            )
        course.restarts += 1
        note = f"All lanes had diverged by step {course.step}: the race began again with rates ten times smaller."
        course.notes.append(note)
        warn(note)
        self._return_to_the_start()

    def _return_to_the_start(self) -> None:
        course, probe, bases = self._track.course, self._track.probe, self._track.bases
        assert course.start is not None  # as long as the race is not over
        first = bases.drivers[0]
        first.enter(probe)  # as at the start
        first.forget_lane()
        course.start.restore(probe, first.written)
        course.begun, course.round, course.sums, course.counted = course.step, 0, {}, 0
        course.early, course.losses, course.out = [], {}, {}
        course.leader = bases.nearest()
        self._begin()


class _LaneFailedError(Exception):
    """The closure has raised in a lane, which may have diverged."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
