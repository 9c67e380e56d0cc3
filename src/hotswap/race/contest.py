"""The race itself: a step, the end of a turn, the end of a round, and the winner's steps after the last one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hotswap.errors import LossError, SettingError, UnsupportedError
from hotswap.race.average import EVERY, Average
from hotswap.race.handover import Handover
from hotswap.race.judging import Plan, Round, Score, kept, ranked, reason, score_of
from hotswap.race.lane import Lane, Seat
from hotswap.race.losses import copied, mean
from hotswap.race.memory import Room
from hotswap.race.owners import claim, refuse_another_race
from hotswap.race.processes import Processes
from hotswap.race.schedule import factor
from hotswap.race.snapshots import on_host
from hotswap.race.winner import FAILURES, Watch

__all__ = ["Contest"]

OF_LANES = ("steps", "losses", "loss", "dropped", "dropped_at", "failures")
"""The attributes of a lane, beside tensors, that the end of a turn changes."""


class Contest:
    """Lanes take turns in the model until one is left; then that one trains alone.

    Args:
        seat: the model and its trained weights.
        lanes: all lanes; those that the plan has no room for are dropped at once.
        plan: the rounds.
        total: steps of the run, if they are known.
        judge: how good the model is; None to judge by the training loss.
        scheduled: whether rates follow the race's own schedule.
        average: whether an average of the weights is kept.
        processes: those that train the model together.
        verbose: whether a line is printed when a lane is dropped and when the race is over.
    """

    def __init__(
        self,
        seat: Seat,
        lanes: Sequence[Lane],
        plan: Plan,
        total: int | None,
        *,
        judge: Callable[[nn.Module], float] | None,
        scheduled: bool,
        average: bool,
        processes: Processes,
        verbose: bool = False,
    ) -> None:
        self.seat, self.lanes, self.scheduled = seat, list(lanes), scheduled
        self.processes, self.verbose = processes, verbose
        self.handover, self.watch = Handover(seat, judge, processes), Watch()
        self.step, self.turn_step, self.round, self.slot = 0, 0, 0, 0
        self.values: list[Tensor | float] = []  # the losses of the turn
        self.observed: list[Tensor | float] = []  # the losses since the last step
        self.start: dict[str, Any] | None = None  # the model before the first step
        self.first_values: dict[str, Any] | None = None  # values that the first forward pass may change, before it
        self.begun, self.first_loss = False, math.inf
        self.winner: Lane | None = None
        self.scale = 1.0  # the factor of a scheduler around the race, for all rates
        self.base: Lane | None = None  # the lane from whose rates this scheduler started
        self.is_owner = False  # whether no other race has trained the weights since
        self.torn = False  # whether the model has parts of several lanes
        self.latest: tuple[Lane, Tensor | float | None] | None = None  # the lane of the latest step, and its loss
        for lane in self.lanes:
            lane.average = Average() if average else None
        self.prepare(plan, total)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has weights of its own, which it has yet to claim."""
        return {**vars(self), "is_owner": False}

    def prepare(self, plan: Plan, total: int | None) -> None:
        """Make a plan for a run of this length; before the first step it can be made anew."""
        self.plan, self.total = plan, total
        self.decay: tuple[float, int] | None = None if total is None or not self.scheduled else (0, total)
        self.racing = self.lanes[: plan.lanes]
        for lane in self.lanes:
            lane.dropped, lane.dropped_at = "", None
        for lane in self.lanes[plan.lanes :]:
            lane.dropped, lane.dropped_at = plan.left_out, 0
        self.here = self.leader = self.racing[0]
        self.slots = self._slots()

    # --- a step -------------------------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Steps of the present turn, or of the present window of the winner."""
        return self.slots[self.slot][1] if self.slots else self.handover.window(self.total)

    def check(self, loss: Tensor | float | None) -> None:
        """Refuse a step that cannot be taken, before anything has changed."""
        if not self.is_owner:
            refuse_another_race(self)
        if self.handover.aside is not None:
            raise UnsupportedError(
                "The model holds the averaged weights that eval() put there, and a step would be lost; call "
                "optimizer.train() before the forward pass."
            )
        if self.total is not None and self.step >= self.total:
            raise SettingError(
                f"The race has taken all of its {self.total} steps (total_steps={self.total}), and its rates are zero; "
                "give Race the number of steps that the run really takes, such as epochs * len(loader), or call "
                "finish(steps) to train so many more."
            )
        silent = loss is None and not self.values and not self.observed
        if silent and self._needs_losses and self.turn_step == self.length - 1 and not self.processes.several:
            raise LossError(self._no_loss())  # several processes find out together, at the end of the turn
        if not self.is_owner:
            claim(self)

    @property
    def _needs_losses(self) -> bool:
        return self.winner is None and self.handover.judge is None

    def _no_loss(self) -> str:
        return (
            f"{self.here.name} has trained for {self.length} steps without a loss, and lanes are judged by their "
            "losses; call step(loss), or observe(loss) before step()."
        )

    def train(self, loss: Tensor | float | None) -> None:
        """Take a step with the optimizer of the lane in the model, whose gradients are there."""
        if not self.begun:
            self._begin()
        if self.torn:  # the gradients are of weights that are no lane's
            self._mend()
            return
        lane = self.here
        self._step(lane)
        if lane.scheduler is not None:
            lane.scheduler.step()
        lane.steps += 1
        self.step += 1
        self.turn_step += 1
        self.latest = (lane, self._take(loss))
        if lane.average is not None and (lane.steps % EVERY == 0 or self.step == self.total):
            lane.average.add(self.seat.weights, math.inf if self.decay is None else (self.decay[1] - self.step) / EVERY)
        if self.turn_step >= self.length or self.step == self.total:
            self._settle(self._end_turn if self.winner is None else self._look)

    def _step(self, lane: Lane) -> None:
        """Take a step with a lane's optimizer; a scheduler of its user's must find the rates that it has set."""
        if lane.scheduler is None or self.watch.rate == 1:
            self.set_rates()
            lane.optimizer.step()
            return
        rates = [group["lr"] for group in lane.optimizer.param_groups]
        try:
            for group in lane.optimizer.param_groups:
                group["lr"] = group["lr"] * self.watch.rate
            lane.optimizer.step()
        finally:
            for group, rate in zip(lane.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    def _take(self, loss: Tensor | float | None) -> Tensor | float | None:
        """Keep a loss on its device; nothing waits for it."""
        if loss is not None:
            self.observed.append(copied(loss))
        if not self.observed:
            return None
        self.values.append(self.observed[0] if len(self.observed) == 1 else mean(self.observed))
        self.observed = []
        return self.values[-1]

    def set_rates(self) -> None:
        """Set the rates of the lane in the model for the next step."""
        lane = self.here
        if lane.scheduler is not None:
            return
        found = self.watch.rate * self.scale
        if self.scheduled:
            found *= factor(self.step, lane.steps, self.total, self.decay)
        if found != lane.factor:
            lane.scale(found)

    def begin_values(self) -> None:
        """Remember what the first forward pass in training may change: batch norm's buffers, or a hidden state."""
        if self.first_values is None and not self.begun:
            self.first_values = on_host({"buffers": dict(self.seat.model.named_buffers()), "also": self.seat.also})

    def _begin(self) -> None:
        """Park every lane at the start; the first one trains."""
        now = self.seat.saved()
        self.start = {**now, **(self.first_values or {})}
        for lane in self.racing:
            if callable(train := getattr(lane.optimizer, "train", None)):
                train()  # as schedulefree's optimizers need it
            lane.parked = self.seat.unused(lane)
        if not self.slots:
            self._end_race()
            self._free()
        self.begun, self.first_values = True, None

    # --- the end of a turn --------------------------------------------------------------------------------------------

    def _settle(self, end: Callable[[], None]) -> None:
        """End a turn or a window; if `end` raises, the lane in the model keeps it, and the next step ends the turn."""
        parts = (self, self.watch, self.handover)
        before = [{name: list(v) if isinstance(v, list) else v for name, v in vars(part).items()} for part in parts]
        lanes = [{name: getattr(lane, name) for name in OF_LANES} for lane in self.lanes]
        try:
            end()
        except BaseException:
            self.handover.resume()
            torn = self.torn
            for part, values in zip([*parts, *self.lanes], [*before, *lanes], strict=True):
                vars(part).update(values)
            self.torn = torn
            if torn:
                self._mend()
            raise
        self.torn = False
        self._tell({lane for lane, values in zip(self.lanes, lanes, strict=True) if values["dropped_at"] is None})
        self._free()

    def _tell(self, raced: set[Lane]) -> None:
        """Print which lanes have been dropped of those that raced, and who has won."""
        if not self.verbose or not self.processes.is_first:
            return
        for lane in self.lanes:
            if lane in raced and lane.dropped_at is not None:
                print(f"step {self.step}: {lane.name} is dropped: {lane.dropped}", flush=True)
        if self.winner is not None and len(raced) > 1:
            print(f"step {self.step}: the race is over, and {self.winner.name} trains alone from here on", flush=True)

    def _mend(self) -> None:
        """Bring the lane back that had the model before parts of others were written into it."""
        self._bring(self.here)
        self.torn = False

    def _bring(self, lane: Lane) -> None:
        self.torn = True
        self.seat.bring(lane, self.start or {})

    # --- turns and rounds ---------------------------------------------------------------------------------------------

    def _slots(self) -> list[tuple[Lane, int]]:
        """The turns of the present round, back and forth through the lanes: on average all are equally late."""
        if self.round >= len(self.plan.rounds):
            return []
        found = []
        for number, length in enumerate(self.plan.turns(self.round)):
            order = self.racing if number % 2 == 0 else self.racing[::-1]
            found += [(lane, length) for lane in order]
        return found

    def _read(self, votes: Sequence[float] = ()) -> tuple[list[float], bool, list[float]]:
        """The losses since the last look, as all processes see them, whether they and the lane are finite, and votes.

        votes: numbers of this process; the sums over all processes are returned.
        """
        device = self.seat.weights[0].device
        parts = [
            value.to(device) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float32, device=device)
            for value in self.values
        ]
        others = torch.cat([self.seat.magnitude(self.here), torch.tensor(votes, device=device)])
        losses, sums = self.processes.look(parts, self.turn_step, others)
        if self.turn_step and not losses and self._needs_losses:
            raise LossError(self._no_loss())
        self.values, self.turn_step = [], 0
        return losses, all(map(math.isfinite, [*losses, sums[0]])), sums[1:]

    def _end_turn(self) -> None:
        lane, waiting = self.here, [one for one in self.racing if one.parked and one.parked["model"] is None]
        room = Room([self.seat.size(one, lane) for one in waiting])
        losses, finite, votes = self._read(room.votes())
        self._drop_for_memory(waiting[room.fewest(votes) :], room)
        if finite:
            lane.failures, lane.losses = 0, lane.losses + losses
            if losses and not math.isfinite(self.first_loss):
                self.first_loss = losses[0]
            self.seat.park(lane)
        else:
            lane.failures += 1
            if lane.failures < FAILURES:
                self.slots.append(self.slots[self.slot])
            elif len(self.racing) > 1:
                self._drop(lane, f"its loss or weights were not finite in {FAILURES} turns in a row")
        if self.step == self.total and self.slot + 1 < len(self.slots):
            self._close(fresh=finite)
            return
        while self.slot + 1 < len(self.slots):
            self.slot += 1
            if self.slots[self.slot][0] in self.racing and len(self.racing) > 1:
                self._seat(self.slots[self.slot][0], fresh=finite)
                return
        self._end_round(finite)

    def _drop_for_memory(self, lanes: Sequence[Lane], room: Room) -> None:
        """Drop lanes for which the host has no room, and say so."""
        for lane in lanes:
            self._drop(lane, "the host's memory has no room to park it")
        if lanes and self.processes.is_first:
            names = ", ".join(lane.name for lane in lanes)
            warnings.warn(f"A race drops {names}: the host has no room to park it; {room}.", UserWarning, stacklevel=2)

    def _seat(self, lane: Lane, *, fresh: bool = True) -> None:
        """Let a lane have the model; `fresh` is whether the lane that has it is as it was parked."""
        if lane is self.here and fresh:
            return
        self.torn = True
        if lane is not self.here:
            self.seat.release(self.here)
        self.here = lane
        self._bring(lane)

    def _end_round(self, fresh: bool) -> None:
        """Compare the lanes, drop the worse ones, begin the next round."""
        rule, judged = self.plan.rounds[self.round], self.handover.judge is not None
        scores = {lane: self._judged(lane, fresh) if judged else score_of(lane.losses) for lane in list(self.racing)}
        if judged or rule.across:
            order = sorted(scores, key=lambda lane: scores[lane].mean)
        else:
            order = ranked(self.lanes, scores, self.first_loss)
        for lane, score in scores.items():
            lane.loss, lane.losses = score.mean, []
        going_on = kept(order, scores, rule)
        self.leader = min(going_on, key=lambda lane: scores[lane].mean)
        for lane in order:
            if lane not in going_on:
                better = next(other for other in going_on if rule.across or other.group == lane.group)
                self._drop(lane, reason(lane, better))
        self.round, self.slot = self.round + 1, 0
        if self.round == len(self.plan.rounds) or len(self.racing) == 1:
            self.watch.baseline = scores[self.leader]
            self._end_race(fresh=fresh or judged)
            return
        self.racing.sort(key=lambda lane: lane is not self.here)  # the lane in the model goes on, if it may
        self.slots = self._slots()
        self._seat(self.slots[0][0], fresh=fresh or judged)

    def _judged(self, lane: Lane, fresh: bool) -> Score:
        self._seat(lane, fresh=fresh and lane is self.here)
        self.torn = True
        value = self.handover.judged()
        self._bring(lane)
        return Score(value if math.isfinite(value) else math.inf)

    def _drop(self, lane: Lane, why: str) -> None:
        lane.dropped, lane.dropped_at, lane.losses = why, self.step, []
        self.racing.remove(lane)

    def _end_race(self, *, fresh: bool = True) -> None:
        """Give the model to the best lane for good, and free what the others have."""
        winner = self.leader if self.leader in self.racing else self.racing[0]
        for lane in list(self.racing):
            if lane is not winner:
                self._drop(lane, f"the race was ended with {winner.name} ahead")
        self._seat(winner, fresh=fresh)
        assert winner.parked is not None
        winner.parked["model"] = winner.parked["model"] or self.start
        self.winner, self.leader, self.racing, self.slots, self.start = winner, winner, [winner], [], None
        winner.losses, self.watch.kept_at = [], self.step
        if self.handover.judge is not None and winner.loss is not None:
            self.handover.begin(winner.loss, on_host(winner.parked["model"]), self.step)
        _advance(winner, self.step - winner.steps)

    def _free(self) -> None:
        """Free what lanes have that were dropped."""
        for lane in self.lanes:
            if lane not in self.racing and lane.parked is not None:
                lane.free()

    # --- after the race -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at the winner's last losses: keep a snapshot, or go back to it."""
        losses, finite, _ = self._read()
        winner, judged = self.here, self.handover.judge is not None
        winner.failures = 0 if finite else winner.failures + 1
        advice = self.watch.advice(losses, self.step, self.total, failures=winner.failures, judged=judged)
        if advice == "go back":
            before = winner.steps
            self._bring(winner)
            _advance(winner, before - winner.steps)
        elif advice == "keep":
            self.seat.park(winner)
        if judged and (finite or self.step == self.total):
            self.handover.judge_winner(winner, self.step, self.total)

    def finish(self, steps: int) -> None:
        """Let the rates fall to zero over the next steps; a race that is under way ends now."""
        shown = self.handover.aside is not None
        self.resume()
        if self.winner is None and self.begun:
            self._settle(self._end_early)
        end = self.step + steps
        if self.scheduled:
            now = 1.0 if self.decay is None else (self.decay[1] - self.step) / max(1, self.decay[1] - self.decay[0])
            self.decay = (end - steps / min(1.0, now) if now > 0 else self.step, end)
        self.total = end
        if shown:
            self.evaluate()

    def _end_early(self) -> None:
        """End the race in the middle of a turn."""
        losses, finite, _ = self._read()
        if finite:
            self.here.losses = self.here.losses + losses
            self.seat.park(self.here)
        self._close(fresh=finite)

    def _close(self, *, fresh: bool) -> None:
        """End the race before its last round does."""
        if self.handover.judge is None and all(lane.losses for lane in self.racing):
            scores = {lane: score_of(lane.losses) for lane in self.racing}
            order = sorted(scores, key=lambda lane: scores[lane].mean)
            self.leader = kept(order, scores, Round(self.step, 1, across=True))[0]
            for lane, score in scores.items():
                lane.loss = score.mean
        self._end_race(fresh=fresh)

    # --- the model and its parameters ---------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Put the model that the race would hand over now in place of the lane in the model."""
        self.handover.evaluate(self.leader, self.here, self.start)

    def resume(self) -> None:
        """Put the weights back that train."""
        self.handover.resume()

    def add(self, group: dict[str, Any], rate: float | None) -> None:
        """Add parameters to every lane, also to those that are parked."""
        new, base = list(group["params"]), self.lanes[0].rates[0]
        for lane in self.lanes:
            own = lane.rates[0]
            lane.add(group, None if rate is None or own is None or not base else own * rate / base)
        for saved in (self.start, self.handover.aside, self.handover.model):
            if saved is not None:
                saved["weights"] += on_host(new)
        self.seat.add(new)
        self.is_owner = False  # this race has not claimed the new weights yet


def _advance(lane: Lane, steps: int) -> None:
    """Move a scheduler of the user's forward by steps that its lane has not taken."""
    for _ in range(steps if lane.scheduler is not None else 0):
        lane.scheduler.step()  # type: ignore[union-attr]
