"""Race: several copies of a run on the same minibatches, of which the worse are dropped until one is left.

`Race.step` is the race. What its lanes are is in `hotswap.optim.racing.lanes`; what decides it, in `hotswap.races`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.swa_utils import update_bn

from hotswap.arms import Arms, Value
from hotswap.errors import ClosureError, LossError, SettingError, UnsupportedError
from hotswap.optim.adapters import Closure
from hotswap.optim.probing import ClosureChecks, Probe, StartPoint
from hotswap.optim.probing.agreement import Agreement, ProcessGroup
from hotswap.optim.probing.closures import Request, as_trial, request_of
from hotswap.optim.probing.failures import is_of_the_rate
from hotswap.optim.probing.grad_mode import grad_mode
from hotswap.optim.probing.gradients import Clipping, LossScale
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION, restore_state
from hotswap.optim.probing.moves.shards import ORDINARY, local
from hotswap.optim.probing.moves.states import loose_entries
from hotswap.optim.racing.bases import Bases, Driver
from hotswap.optim.racing.checkpoints import (
    leader_in,
    pack_course,
    refuse_missing_lanes,
    refuse_other_race,
    settings_of,
    unpack_course,
    with_entry,
    without_entry,
)
from hotswap.optim.racing.course import Course, Out
from hotswap.optim.racing.grids import Choices, JoinedArms
from hotswap.optim.racing.lanes import Lane, watched
from hotswap.optim.racing.records import Brief, Cost, LaneStanding, RaceStep, Standings
from hotswap.optim.racing.together import Together, Trying
from hotswap.optim.snapshots import Snapshot
from hotswap.optim.state_dict import refuse_other_base
from hotswap.optim.user_warnings import warn, warn_of_raising_lane
from hotswap.optim.validation import check_base, check_group
from hotswap.optim.wrapper import Wrapper
from hotswap.races import FIRST, ROUNDS, Round, Schedule, highest_loss, nearest, plan_rounds, ranked, typical

__all__ = ["Race"]

LOOK = 10
"""After how many steps the winner's loss is looked at, and several processes agree on which lanes have diverged."""

MOST_RESTARTS, MOST_HALVINGS = 3, 10

KEEP = 200
"""After how many steps the winner's snapshot is taken anew."""

SMOOTHING = 0.2
"""The weight of the newest in the winner's running loss: the mean of the last five looks or so."""

SMALL = 5_000_000
"""Parameters of a network whose lanes may be faster as one program."""


class Race(Wrapper):
    """Let copies of a run race on the same minibatches, each with its own hyperparameters, and go on with the best.

        optimizer = Race(torch.optim.AdamW(model.parameters()), total_steps=epochs * len(loader))
        for x, y in loader:
            loss = optimizer.step(lambda: loss_fn(model(x), y))
        print(optimizer.standings())

    Each lane has weights, optimizer state and buffers of its own. In every step all of them take the same minibatch,
    with the same random numbers. At the end of each round they are ranked by their mean training loss over the last
    third of the round, and the best stay. Between steps the model is the leader: the best when lanes were last
    compared, and before that the one whose rate is nearest to the base's own.

    Args:
        base_optimizer: turns a gradient into an update, in each lane; it must not have taken a step yet. Or a list of
            several, which have lanes of their own, over the same parameters in the same groups.
        arms: the values that lanes have, by hyperparameter name; every combination is a lane. By default six rates,
            from 30 times the base's own to a tenth of it: 3e-2 to 1e-4 for AdamW's 1e-3. With several bases, a list
            that has these for each of them, or None for the default, which for SGD is then three rates: 10 times its
            own, 3 times and its own, where 0.1 stands in for torch's default of 1e-3.
        total_steps: how many steps there will be. None if that is not known: rounds then end after 60, 150 and 500
            steps, and rates do not fall in the end.
        rounds: until which share of all steps each round goes, or until which step where it is a whole number, and how
            many lanes it keeps; the last one keeps 1.
        least: how many steps a round has at least.
        warmup: over which share of all steps rates rise to their value; None for not at all.
        decay: over which share of them, the last ones, they fall to 0; None for not at all.
        clip_norm, clip_value: shorten the gradient before each step of a lane.
        loss_scale: see `HotSwap`.
        module: the model, see `HotSwap`.
        offload: park waiting lanes in the host's memory, for models of which the device holds no six copies.
        process_group: of the processes that train together, see `HotSwap`.

    The `lr` of a parameter group is the user's scale: a group's rate is the lane's times its `lr` divided by the first
    group's `lr` at construction. So a scheduler of one's own scales every lane; leave out `warmup` and `decay` with it.
    With several bases, that `lr` is the first one's, whoever leads; each base keeps the ratios of its own groups. All
    other values in the groups are those of the leader's optimizer.

    A lane whose loss is not finite is out. So is, in one process and after the first step, a lane whose closure raises
    where that of another does not. If all are out, the race begins again from the state at its start, with rates ten
    times smaller, at most three times. A winner that diverges later, so that its loss is not finite or far above that
    of the first steps, goes back to its latest snapshot with half its rate.
    """

    def __init__(
        self,
        base_optimizer: Optimizer | Sequence[Optimizer],
        arms: Choices | Sequence[Choices | None] | None = None,
        total_steps: int | None = None,
        *,
        rounds: Sequence[tuple[float, int]] = ROUNDS,
        least: int = 20,
        warmup: float | None = 0.01,
        decay: float | None = 0.4,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        loss_scale: float | None = None,
        module: nn.Module | None = None,
        offload: bool = False,
        process_group: ProcessGroup = None,
    ) -> None:
        self._bases = Bases.of(base_optimizer, arms)
        self.schedule = Schedule(total_steps, warmup, decay)
        self.rounds: list[Round] = plan_rounds(rounds, len(self.arms), total_steps, least)
        self._module, self._process_group, self._offload = module, process_group, offload
        self._clipping = Clipping(clip_norm, clip_value)
        self._loss_scale = None if loss_scale is None else LossScale(loss_scale)
        for driver in self._bases.drivers:
            check_base(driver.base, module, "Race")
        first = self._bases.drivers[0]
        self._probe, self._agreement = self._make_parts(first)
        state = first.base.state
        super().__init__(first.base.param_groups, first.base.defaults)
        self.state = state  # Optimizer.__init__ has replaced it by an empty one
        self._bases.join()
        self._course = Course(leader=self._nearest())

    def _make_parts(self, on_track: Driver) -> tuple[Probe, Agreement]:
        probe = Probe(
            on_track.base,
            on_track,
            module=self._module,
            process_group=False,  # lanes are compared when there is something to decide, and not in every pass
            clipping=self._clipping,
            loss_scale=self._loss_scale,
            checks=ClosureChecks(enabled=False),
        )
        return probe, Agreement(self._process_group, lambda: probe.parameters()[0].device)

    def _nearest(self) -> int:
        """The lane that leads before any was judged, one of the first base's."""
        first = self._bases.drivers[0]
        rate, arms = first.initial_lr, first.arms
        rates = [float(arms.values(arm).get("lr", rate)) for arm in range(len(arms))]  # type: ignore[arg-type]
        return nearest(rates, rate)

    @property
    def base(self) -> Optimizer:  # type: ignore[override]  # which one it is changes with the leader
        """The leader's optimizer, which is the winner's in the end."""
        return self._probe.base

    @property
    def arms(self) -> Arms | JoinedArms:
        """What lanes differ in, by their numbers."""
        return self._bases.arms

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizers. Its `lr` is a scale, in units of the first base's."""
        check_group(param_group, "Race")
        self._bases.add_group(param_group, self.base)

    # --- a step -------------------------------------------------------------------------------------------------------

    @torch._disable_dynamo  # type: ignore[attr-defined]  # compiled, a step would forget who is racing
    def step(self, closure: Closure | None = None) -> Tensor | None:  # type: ignore[override]  # torch's return a float
        """Let every living lane take a step. Returns the leader's loss before it, detached.

        Args:
            closure: computes the loss, forward only, at the parameters as they are; or the pair `(loss, anything)`. It
                is called once for each lane; in those that do not lead, `hotswap.in_trial()` is true. One that calls
                `backward()` itself works, too, if it clears gradients first.

        When the race is over, the closure may be left out: the base then takes a step along the gradients that are in
        `.grad`, with the winner's values.
        """
        request, course = request_of(closure, None, None), self._course
        if request.closure is None and request.after_backward is not None:
            with torch.enable_grad():
                request.after_backward()
        ahead, course.ahead = course.ahead, False
        return None if ahead and request.closure is None else self._step(request)

    @torch._disable_dynamo  # type: ignore[attr-defined]  # as above
    def step_ahead(self, closure: Closure) -> Tensor:
        """Take the next step now, with a closure; the `step()` without one that follows then does nothing.

        For loops that call `step()` themselves, without a closure:

            loss = optimizer.step_ahead(lambda: loss_fn(model(x), y))
            ...  # where the loop would run its backward
            optimizer.step()  # the loop's own
        """
        request = request_of(closure, None, None)
        if request.closure is None:
            raise ClosureError("step_ahead() needs a closure: optimizer.step_ahead(lambda: loss_fn(model(x), y)).")
        loss = self._step(request)
        assert loss is not None  # there was a closure
        self._course.ahead = True
        return loss

    def _step(self, request: Request) -> Tensor | None:
        course = self._course
        self._warn_of_the_end()
        if course.won is None and (request.closure is not None or self._probe.can_move):
            if request.closure is None:
                raise ClosureError(
                    "step() was called without a closure while lanes are racing: each of them needs the minibatch. "
                    "Write optimizer.step(lambda: loss_fn(model(x), y))."
                )
            start = self._race(request)
        elif request.closure is None:
            self._step_without_loss()
            return None
        else:
            start = self._run_on(request)
        return start.loss

    def _step_without_loss(self) -> None:
        """A step along the gradients that are in `.grad`.

        Before the race is over, only where all rates are 0: so torch's distributed checkpoints make state to load into.
        """
        course, factor = self._course, self._factor()
        self._probe.step_without_loss(course.leader, factor)
        if course.won is not None:
            self._count_step_of_winner(factor, torch.tensor(math.nan))

    def _factor(self) -> float:
        """By what the rates of all lanes are multiplied in this step."""
        course = self._course
        factor = self.schedule.factor(course.step, course.begun)
        if course.restarts or course.halvings:
            factor *= 0.1**course.restarts * 0.5**course.halvings
        return factor

    @torch.no_grad()
    def _race(self, request: Request) -> StartPoint:
        """One step of every lane, and what follows from their losses."""
        course, probe, factor = self._course, self._probe, self._factor()
        if not course.lanes:
            self._begin()
        leader = course.lane(course.leader)
        leader.park(probe)  # with all that was done to the model since
        numbers = probe.random_numbers()
        try:
            losses = self._step_together(request, factor)
            together = bool(losses)
            failed: list[tuple[Lane, Exception]] = []
            for lane in course.order[len(losses) :]:
                lane.enter(probe)
                probe.draw_again(numbers)
                try:
                    start = self._step_of(lane, request, factor)
                except _LaneFailedError as failure:
                    if len(failed) == len(losses) and lane is leader and self._weights_are_finite():
                        raise failure.error from None  # it raises in all lanes, so it is not the rates' doing
                    failed.append((lane, failure.error))
                    start = self._nothing_seen()
                losses[lane.number] = start.seen
                if lane is not leader:
                    lane.park(probe)
        except BaseException:
            leader.enter(probe)  # which has not moved yet
            raise
        if course.trying is not None:
            course.trying.done(together=together)
        self._record(start, losses, factor)
        self._decide(losses)
        for lane, error in failed[:1]:
            self._warn_of_failure(lane, error, factor)
        return start

    def _step_together(self, request: Request, factor: float) -> dict[int, float]:
        """The steps of all lanes but the leader's, if they can be one program and it is faster; their losses.

        None of them has taken a step where it cannot be.
        """
        course, probe, trying = self._course, self._probe, self._course.trying
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
        probe = self._probe
        with probe:
            with as_trial(lane.number != self._course.leader):
                try:
                    start = probe.gradient_pass(request, trials=False, survey=True)
                except Exception as error:
                    if not self._may_have_diverged(error):
                        raise
                    raise _LaneFailedError(error) from error
            if not start.overflow:
                watched(lane, self._course.lanes, partial(probe.take_untried, lane.number, factor))
        return start

    def _may_have_diverged(self, error: Exception) -> bool:
        """Whether a gradient pass may have raised because its lane has diverged, see `is_of_the_rate`.

        In the first step all lanes have the weights of the start, and there is nobody to blame but the closure. Of
        several processes, one that left a pass would meet the others in the exchange of another lane's gradients.
        """
        course = self._course
        return course.step != course.begun and not self._agreement.active() and is_of_the_rate(error)

    def _warn_of_failure(self, lane: Lane, error: Exception, factor: float) -> None:
        if self._probe.checks.first_time("raising lane"):
            scale = self._probe.move.scale(self.base.param_groups[0]) * factor
            warn_of_raising_lane(self._bases.applied(lane.number, scale).items(), error)

    def _nothing_seen(self) -> StartPoint:
        """What a gradient pass that raised has given."""
        device = local(self._probe.parameters()[0]).device
        return StartPoint(torch.tensor(math.nan, device=device), math.nan, None)

    def _weights_are_finite(self) -> bool:
        """Whether the lane on the track has weights that are numbers."""
        return all(bool(local(parameter).isfinite().all()) for parameter in self._probe.parameters())

    def _begin(self) -> None:
        """Give every lane what is there now."""
        course, probe = self._course, self._probe
        if any(is_lazy(parameter) for parameter in probe.parameters()):
            raise UnsupportedError(
                "Race: some parameters are not initialized yet, so that there is nothing to copy; call the model once "
                "on a minibatch before the first step."
            )
        if course.start is None:
            course.start = Snapshot.of(probe)
        course.lanes = [Lane(arm, self._bases.driver(arm), self._offload) for arm in range(len(self.arms))]
        for lane in course.lanes:
            lane.written = [{} for _ in self.base.param_groups]
            lane.state.update(loose_entries(lane.driver.base.state))
            lane.park(probe)
        course.lane(course.leader).hand_over(probe)
        if self._module is not None and self._is_small():
            course.trying = Trying(Together(self._module))

    def _is_small(self) -> bool:
        """Whether lanes might be faster as one program: on a GPU, in one process, and small."""
        parameters = self._probe.parameters()
        whole = self._loss_scale is None and not self._offload and not self._agreement.active()
        plain = all(type(p) in ORDINARY and p.is_cuda and p.dtype not in LOW_PRECISION for p in parameters)
        return whole and plain and sum(parameter.numel() for parameter in parameters) <= SMALL

    def _record(self, start: StartPoint, losses: dict[int, float], factor: float) -> None:
        course = self._course
        scale = self._probe.move.scale(self.base.param_groups[0]) * factor
        course.last_step = RaceStep(
            step=course.step,
            factor=factor,
            leader=course.leader,
            values={number: self._bases.applied(number, scale) for number in losses},
            losses=losses,
            optimizers={number: self._bases.driver(number).name for number in losses},
            aux=start.aux,
        )
        course.step, course.passes = course.step + 1, course.passes + len(losses)

    # --- who stays ----------------------------------------------------------------------------------------------------

    def _decide(self, losses: dict[int, float]) -> None:
        """Count the losses of a step; drop lanes that have diverged, and at the end of a round all but the best."""
        course = self._course
        done, now = course.step - course.begun, self.rounds[course.round]
        if done <= FIRST:
            course.early.append(typical(losses.values()))
        if done > now.judged_from:
            course.counted += 1
            for number, loss in losses.items():
                course.sums[number] = course.sums.get(number, 0.0) + loss
        if done == now.end:
            self._end_round(now)
        elif done % LOOK == 0 or not self._agreement.active():
            self._drop_diverged(losses)

    def _end_round(self, now: Round) -> None:
        course = self._course
        numbers = [lane.number for lane in course.lanes]
        *means, highest = self._agreement.means(
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
        course = self._course
        numbers = list(losses)
        agreed = dict(zip(numbers, self._agreement.means([losses[number] for number in numbers]), strict=True))
        stay = [number for number in numbers if math.isfinite(agreed[number])]
        if len(stay) < len(numbers):
            for number in set(numbers) - set(stay):
                course.out[number] = Out(course.step, "out: its loss was not finite")
            first = course.leader if course.leader in stay else min(stay, key=lambda n: agreed[n], default=None)
            self._go_on_with([] if first is None else [first, *(number for number in stay if number != first)])

    def _go_on_with(self, stay: list[int]) -> None:
        """These lanes stay, and the first of them leads; with none left the race begins again."""
        course, probe = self._course, self._probe
        if not stay:
            self._begin_again()
            return
        if course.leader != stay[0]:
            if course.leader in stay:
                course.lane(course.leader).park(probe)
            course.leader = stay[0]
            course.lane(course.leader).enter(probe)
        course.lanes = [lane for lane in course.lanes if lane.number in stay]

    def _finish(self) -> None:
        """One lane is left at the end of a round: it has won, and nothing is kept of the others."""
        course = self._course
        course.won, course.start = course.step, None
        course.out[course.leader] = Out(course.step, "won")
        course.running_loss = course.losses[course.leader]
        winner = course.lanes[0]
        winner.weights, winner.buffers = {}, type(winner.buffers)()  # the model has them
        course.kept = Snapshot.of(self._probe)

    def _begin_again(self) -> None:
        """All lanes have diverged: begin at the start, with rates ten times smaller."""
        course, probe = self._course, self._probe
        assert course.start is not None  # as long as the race is not over
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
        first = self._bases.drivers[0]
        first.enter(probe)  # as at the start
        first.forget_lane()
        course.start.restore(probe, first.written)
        course.begun, course.round, course.sums, course.counted = course.step, 0, {}, 0
        course.early, course.losses, course.out = [], {}, {}
        course.leader = self._nearest()
        self._begin()

    # --- after the race -----------------------------------------------------------------------------------------------

    def _run_on(self, request: Request) -> StartPoint:
        """A step of the winner, whose loss is looked at now and then: to read it in every step would take time."""
        course, probe, factor = self._course, self._probe, self._factor()
        since = course.step - (course.won or 0)
        look = since % LOOK == 0
        with grad_mode(False):
            with probe:
                start, back = self._pass_of_winner(request, look=look)
                if not back and not start.overflow:
                    if look and (course.kept is None or since % KEEP == 0):
                        course.kept = None  # its memory is free for the new one
                        course.kept = Snapshot.of(probe)
                    probe.take_untried(course.leader, factor)
            if back:
                self._go_back()
            self._count_step_of_winner(factor, start.loss, start.aux, back=back)
        return start

    def _pass_of_winner(self, request: Request, *, look: bool) -> tuple[StartPoint, bool]:
        """The gradient pass of the winner, and whether it has diverged since it was last looked at."""
        try:
            start = self._probe.gradient_pass(request, trials=False, read=look)
        except Exception as error:
            if not self._may_have_diverged(error) or self._weights_are_finite():
                raise
            return self._nothing_seen(), True
        return start, look and self._has_diverged(start.seen)

    def _count_step_of_winner(self, factor: float, loss: Tensor, aux: object = None, *, back: bool = False) -> None:
        course, probe = self._course, self._probe
        if self.schedule.total_steps is None:
            course.average.follow(probe.parameters())
        scale = probe.move.scale(self.base.param_groups[0])
        course.last_step = Brief(course.step, factor, course.leader, scale, loss, aux, back)
        course.step, course.passes = course.step + 1, course.passes + 1

    @contextmanager
    def average(self) -> Iterator[None]:
        """Inside, the model has an average of the winner's weights: for runs without `total_steps`, to evaluate them.

            with optimizer.average():
                optimizer.calibrate(batches)
                evaluate(model)

        Before the race is over there is no average, and the model stays the leader.
        """
        if self.schedule.total_steps is not None:
            raise UnsupportedError(
                "Race.average: where total_steps is given, rates fall in the end, and no average is kept; evaluate the "
                "model as it is."
            )
        now = Lane(self._course.leader, self._bases.driver(self._course.leader))
        with torch.no_grad():
            now.park(self._probe)
            self._course.average.place()
        try:
            yield
        finally:
            with torch.no_grad():
                now.put_back(self._probe)

    def calibrate(self, batches: Iterable[Any]) -> None:
        """Compute the statistics of batch norm anew, for the weights that the model has now.

        Args:
            batches: the model's inputs, or tuples or lists that begin with one.
        """
        if self._module is None:
            raise SettingError("Race.calibrate needs to know the model: give it to Race(..., module=model).")
        update_bn(batches, self._module, device=local(self._probe.parameters()[0]).device)

    def _has_diverged(self, loss: float) -> bool:
        """Whether the winner is far worse than before it was trained, or has no loss at all."""
        course = self._course
        course.running_loss += SMOOTHING * (loss - course.running_loss)
        return not self._agreement.means([course.running_loss])[0] <= course.highest

    def _go_back(self) -> None:
        course = self._course
        if course.kept is None or course.halvings == MOST_HALVINGS:
            raise LossError(
                f"The winner of the race has diverged {course.halvings + 1} times, with half its rate after each; look "
                "at the data and at the loss."
            )
        course.kept.restore(self._probe, self._bases.driver(course.leader).written)
        course.halvings += 1
        course.running_loss = course.losses[course.leader]
        note = f"The winner had diverged by step {course.step}: it went back to its snapshot, with half its rate."
        course.notes.append(note)
        warn(note)

    def _warn_of_the_end(self) -> None:
        course, total = self._course, self.schedule.total_steps
        if total is not None and course.step == total and self.schedule.decay:
            warn(
                f"All of total_steps={total} are done, and all rates are 0 from now on: nothing moves any more. Give "
                "the number of steps that there really are."
            )

    # --- what it tells about itself -----------------------------------------------------------------------------------

    @property
    def last_step(self) -> RaceStep | None:
        """What the latest step did."""
        course = self._course
        if isinstance(course.last_step, Brief):
            course.last_step = course.last_step.written(self._bases)
        return course.last_step

    @property
    def winner(self) -> dict[str, Value] | None:
        """The values of the lane that has won; None until the race is over."""
        course = self._course
        return None if course.won is None else self._values(course.leader)

    @property
    def cost(self) -> Cost:
        """Forward and backward passes so far, and what a run without a race would have had."""
        return Cost(self._course.passes, self._course.step)

    def standings(self) -> Standings:
        """Who is racing, and who is out since when, and why. Print it."""
        course, rows = self._course, []
        for number in range(len(self.arms)):
            out = course.out.get(number)
            loss = course.losses.get(number, math.nan)
            rows.append(
                LaneStanding(
                    number,
                    self._values(number),
                    out is None,
                    loss,
                    None if out is None else out.step,
                    "" if out is None else out.reason,
                    self._bases.driver(number).name,
                )
            )
        told = [course.trying.told] if course.trying is not None and course.trying.decided else []
        return Standings(tuple(rows), course.leader, (*told, *course.notes))

    # --- checkpoints and copies ---------------------------------------------------------------------------------------

    def _packed_state(self) -> dict[str, Any]:
        """The leader's state as the base stores it, and all that the race remembers.

        The leader's weights and buffers are the model's, and are saved with it.
        """
        return with_entry(self.base.state_dict(), self._packed())

    def _load_packed(self, state_dict: dict[str, Any]) -> None:
        plain, entry = without_entry(state_dict)
        refuse_other_race(entry, self._settings())
        refuse_missing_lanes(entry)
        driver = self._bases.driver(leader_in(entry))
        refuse_other_base(plain["param_groups"], driver.base)
        driver.base.load_state_dict(plain)
        restore_state(driver.base, plain)
        self._bases.share(driver)
        self._probe.base, self._probe.move = driver.base, driver
        self._unpack(entry)

    def _settings(self) -> dict[str, Any]:
        return settings_of(self._bases, self.schedule, self.rounds)

    def _packed(self) -> dict[str, Any]:
        scale = None if self._loss_scale is None else [self._loss_scale.value, self._loss_scale.good]
        entry = {"initial_lr": self._bases.drivers[0].initial_lr, "loss_scale": scale}
        return {**self._settings(), **entry, **pack_course(self._course, self._probe, self._bases)}

    def _unpack(self, entry: dict[str, Any]) -> None:
        if self._loss_scale is not None and entry["loss_scale"] is not None:
            self._loss_scale.value, self._loss_scale.good = entry["loss_scale"]
        unpack_course(entry, self._course, self._probe, self._bases, offload=self._offload)

    def __getstate__(self) -> dict[str, Any]:
        settings = ("schedule", "rounds", "_module", "_process_group", "_offload", "_clipping", "_loss_scale")
        kept = {name: self.__dict__[name] for name in settings}
        return kept | {"bases": [(one.base, one.arms) for one in self._bases.drivers], "_packed": self._packed()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = dict(state)
        entry, bases = own.pop("_packed"), own.pop("bases")
        self.__dict__.update(own)
        self._bases = Bases([base for base, _ in bases], [arms for _, arms in bases])
        self._course = Course(leader=leader_in(entry))
        self._probe, self._agreement = self._make_parts(self._bases.driver(self._course.leader))
        super().__setstate__({"defaults": self._bases.drivers[0].base.defaults})  # groups and state are the bases'
        self._unpack(entry)

    def _values(self, number: int) -> dict[str, Value]:
        return self._bases.applied(number, 0.1**self._course.restarts)

    def __repr__(self) -> str:
        return f"Race({self._bases!r}, {self.schedule!r})"


class _LaneFailedError(Exception):
    """The closure has raised in a lane, which may have diverged."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
