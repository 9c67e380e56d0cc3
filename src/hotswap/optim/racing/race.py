"""Race: several copies of a run on the same minibatches, of which the worse are dropped until one is left.

Here is what a user meets: the optimizer, its standings, its checkpoints. A step is taken by `Contest` while lanes are
racing and by `Winner` afterwards, both on a `Track`; `hotswap.races` has the rules by which lanes are judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import update_bn

from hotswap.arms import Arms, Value
from hotswap.errors import ClosureError, SettingError, UnsupportedError
from hotswap.optim.adapters import Closure
from hotswap.optim.probing import ClosureChecks, Probe
from hotswap.optim.probing.agreement import Agreement, ProcessGroup
from hotswap.optim.probing.buffers import BufferSnapshot
from hotswap.optim.probing.closures import Request, request_of
from hotswap.optim.probing.gradients import Clipping, LossScale
from hotswap.optim.probing.moves.low_precision import restore_state
from hotswap.optim.probing.moves.shards import local
from hotswap.optim.racing.bases import Bases
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
from hotswap.optim.racing.contest import Contest
from hotswap.optim.racing.course import Course
from hotswap.optim.racing.grids import Choices, JoinedArms
from hotswap.optim.racing.records import Brief, Cost, LaneStanding, RaceStep, Standings
from hotswap.optim.racing.track import Track
from hotswap.optim.racing.winner import Winner
from hotswap.optim.state_dict import refuse_other_base
from hotswap.optim.user_warnings import warn
from hotswap.optim.validation import check_base, check_group
from hotswap.optim.wrapper import Wrapper
from hotswap.races import ROUNDS, Round, Schedule, plan_rounds

__all__ = ["Race"]

SCHEDULED = 3
"""A scale that has changed so often is a scheduler's."""


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
        first = self._bases.drivers[0].base
        self._set_up(Course(leader=self._bases.nearest()))
        state = first.state
        super().__init__(first.param_groups, first.defaults)
        self.state = state  # Optimizer.__init__ has replaced it by an empty one
        self._bases.join()

    def _set_up(self, course: Course) -> None:
        """Make the parts that take the steps."""
        driver = self._bases.driver(course.leader)
        probe = Probe(
            driver.base,
            driver,
            module=self._module,
            process_group=False,  # lanes are compared when there is something to decide, and not in every pass
            clipping=self._clipping,
            loss_scale=self._loss_scale,
            checks=ClosureChecks(enabled=False),
        )
        agreement = Agreement(self._process_group, lambda: probe.parameters()[0].device)
        track = Track(probe, self._bases, course, self.schedule, agreement, self._module, self._offload)
        self._averaged = False  # whether the model has the average now
        self._scale, self._scaled = track.scale(), 0  # the user's, and how often it has changed
        self._probe, self._course, self._track = probe, course, track
        self._contest, self._winner = Contest(track, self.rounds), Winner(track)

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
        for snapshot in (self._course.start, self._course.kept):
            if snapshot is not None:
                snapshot.take_in_what_is_new(self._probe)

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
        if self._averaged:
            raise UnsupportedError(
                "Race.step was called inside of `with optimizer.average()`, on leaving which the weights come back as "
                "they were: the step would be lost. Leave the block before you train on."
            )
        self._warn_of_the_end()
        self._warn_of_a_second_schedule()
        course = self._course
        if request.closure is not None:
            return (self._contest if course.won is None else self._winner).step(request).loss
        if course.won is not None:
            self._winner.step_without_loss()
        elif self._probe.can_move:
            raise ClosureError(
                "step() was called without a closure while lanes are racing: each of them needs the minibatch. "
                "Write optimizer.step(lambda: loss_fn(model(x), y))."
            )
        else:  # all rates are 0: so torch's distributed checkpoints make state to load into
            self._probe.step_without_loss(course.leader, self._track.factor())
        return None

    def _warn_of_the_end(self) -> None:
        course, total = self._course, self.schedule.total_steps
        if total is not None and course.step == total and self.schedule.decay:
            warn(
                f"All of total_steps={total} are done, and all rates are 0 from now on: nothing moves any more. Give "
                "the number of steps that there really are."
            )

    def _warn_of_a_second_schedule(self) -> None:
        """Where a scheduler's rates would fall twice. Setting the scale by hand, once or twice, is not warned of."""
        schedule, scale = self.schedule, self._track.scale()
        if scale == self._scale or schedule.total_steps is None or not schedule.decay:
            return
        self._scale, self._scaled = scale, self._scaled + 1
        if self._scaled == SCHEDULED:
            warn(
                "The lr of the race's groups keeps changing, as a scheduler changes it, and the race has a warm-up and "
                "a decay of its own: rates are multiplied by both. Leave the scheduler out, or give Race(..., "
                "warmup=None, decay=None)."
            )

    # --- averages -----------------------------------------------------------------------------------------------------

    @contextmanager
    def average(self) -> Iterator[None]:
        """Inside, the model has an average of the winner's weights: for runs without `total_steps`, to evaluate them.

            with optimizer.average():
                optimizer.calibrate(batches)
                evaluate(model)

        Before the race is over there is no average, and the model stays the leader. A step inside is refused: on
        leaving, the weights come back as they were on entering.
        """
        if self.schedule.total_steps is not None:
            raise UnsupportedError(
                "Race.average: where total_steps is given, rates fall in the end, and no average is kept; evaluate the "
                "model as it is."
            )
        buffers = BufferSnapshot()
        with torch.no_grad():
            if owners := self._probe.buffers():
                buffers.read(owners, self._probe.parameters())
            put_back = self._course.average.place()
        outer, self._averaged = self._averaged, True
        try:
            yield
        finally:
            self._averaged = outer
            with torch.no_grad():
                put_back()
                if buffers.owners:
                    buffers.write(resized=True)

    def calibrate(self, batches: Iterable[Any]) -> None:
        """Compute the statistics of batch norm anew, for the weights that the model has now.

        Args:
            batches: the model's inputs, or tuples or lists that begin with one.
        """
        if self._module is None:
            raise SettingError("Race.calibrate needs to know the model: give it to Race(..., module=model).")
        update_bn(batches, self._module, device=local(self._probe.parameters()[0]).device)

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
        self._scale = self._track.scale()  # as it was saved: nobody has changed it

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
        self._set_up(Course(leader=leader_in(entry)))
        super().__setstate__({"defaults": self._bases.drivers[0].base.defaults})  # groups and state are the bases'
        self._unpack(entry)

    def _values(self, number: int) -> dict[str, Value]:
        return self._bases.applied(number, 0.1**self._course.restarts)

    def __repr__(self) -> str:
        return f"Race({self._bases!r}, {self.schedule!r})"
