"""The race itself: turns, rounds, and the winner's run after the last round. All that changes in a race is here."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from hotswap.errors import LossError, SettingError, UnsupportedError
from hotswap.race.average import EVERY, Average
from hotswap.race.judging import Plan, Score, beats, noise, score_of
from hotswap.race.lane import Lane, Seat
from hotswap.race.processes import Processes
from hotswap.race.schedule import factor
from hotswap.race.snapshots import copied, hosted

__all__ = ["Contest"]

WINDOW = 50
"""Steps of the winner from one look at its losses to the next."""

JUDGED_EVERY = 0.1
"""Share of the run from one judgement of the winner to the next; without a length, of the steps so far."""

KEPT = 0.02
"""Share of the run from one snapshot of the winner to the next, at least."""

ROLLBACKS = 2
"""How often a winner goes back because its loss rose."""

STALE = 5
"""A snapshot is replaced after so many times that long, also while the loss is higher than it was."""

FAILURES = 2
"""Turns in a row that were not finite, after which a lane is dropped; windows, after which the winner's rate falls."""

_owners: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Which contest trains a weight."""

OF_LANES = ("steps", "losses", "loss", "dropped", "dropped_at", "failures")
"""What the end of a turn changes in a lane, beside tensors."""


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
    ) -> None:
        self.seat, self.lanes, self.judge, self.scheduled, self.processes = (
            seat,
            list(lanes),
            judge,
            scheduled,
            processes,
        )
        self.keeps_average = average
        self.step, self.turn_step, self.round, self.slot = 0, 0, 0, 0
        self.values: list[Tensor | float] = []
        self.observed: list[Tensor | float] = []
        self.start: dict[str, Any] | None = None  # the model before the first step
        self.aside: dict[str, Any] | None = None  # the lane's own weights, while the model is evaluated
        self.winner: Lane | None = None
        self.baseline: Score | None = None
        self.best: Score | None = None
        self.rate, self.scale = 1.0, 1.0  # of rollbacks, and of a scheduler around the race
        self.base: Lane | None = None  # whose rates such a scheduler started from
        self.rollbacks, self.risen, self.kept_at = 0, 0, 0
        self.begun, self.first_loss = False, math.inf
        self.judged_best: float | None = None  # the best that `judge` has said of the winner
        self.judged_last, self.judged_at = math.inf, 0
        self.judged_model: dict[str, Any] | None = None  # the model of which it said so
        self.torn = False  # whether the model has parts of several lanes
        for lane in self.lanes:
            lane.average = Average() if average else None
        self.prepare(plan, total)

    def prepare(self, plan: Plan, total: int | None) -> None:
        """Make a plan for a run of this length; before the first step it can be made anew."""
        self.plan, self.total = plan, total
        self.decay: tuple[float, int] | None = None if total is None or not self.scheduled else (0, total)
        self.racing = self.lanes[: plan.lanes]
        for lane in self.lanes:
            lane.dropped, lane.dropped_at = "", None
        for lane in self.lanes[plan.lanes :]:
            lane.dropped, lane.dropped_at = "the run is too short to race it", 0
        self.here = self.leader = self.racing[0]
        self.slots = self._slots()

    # --- a step -------------------------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Steps of the present turn, or of the present window of the winner."""
        return self.slots[self.slot][1] if self.slots else WINDOW

    def check(self, loss: Tensor | float | None) -> None:
        """Refuse a step that cannot be taken, before anything has changed."""
        self.refuse_another_race()
        if self.aside is not None:
            raise UnsupportedError(
                "The model holds the averaged weights that eval() put there, and a step would be lost; call "
                "optimizer.train() before the forward pass."
            )
        if self.total is not None and self.step >= self.total:
            raise SettingError(
                f"The race has taken all of its {self.total} steps (total_steps={self.total}), and its rates are zero; "
                "give Race the number of steps that the run really takes, such as epochs * len(loader)."
            )
        last = self.turn_step == self.length - 1
        if (
            last
            and self.winner is None
            and self.judge is None
            and loss is None
            and not self.values
            and not self.observed
        ):
            raise LossError(
                f"{self.here.name} has trained for {self.length} steps without a loss, and lanes are judged by their "
                "losses; call step(loss), or observe(loss) before step()."
            )
        self._claim()

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
        self._take(loss)
        if lane.average is not None and lane.steps % EVERY == 0:
            lane.average.add(self.seat.weights)
        if self.turn_step >= self.length or self.step == self.total:
            self._settle(self._end_turn if self.winner is None else self._look)

    def _step(self, lane: Lane) -> None:
        """Take a step with a lane's optimizer; a scheduler of its user's must find the rates that it has set."""
        if lane.scheduler is None or self.rate == 1:
            self.set_rates()
            lane.optimizer.step()
            return
        rates = [group["lr"] for group in lane.optimizer.param_groups]
        try:
            for group in lane.optimizer.param_groups:
                group["lr"] = group["lr"] * self.rate
            lane.optimizer.step()
        finally:
            for group, rate in zip(lane.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    def _take(self, loss: Tensor | float | None) -> None:
        """Keep a loss on its device; nothing waits for it."""
        if loss is not None:
            self.observed.append(_number(loss))
        if self.observed:
            self.values.append(self.observed[0] if len(self.observed) == 1 else _mean(self.observed))
            self.observed = []

    def set_rates(self) -> None:
        """Set the rates of the lane in the model for the next step."""
        lane = self.here
        if lane.scheduler is not None:
            return
        found = self.rate * self.scale
        if self.scheduled:
            found *= factor(self.step, lane.steps, self.total, self.decay)
        if found != lane.factor:
            lane.scale(found)

    def refuse_another_race(self) -> None:
        """Refuse weights that another race has begun to train: the model holds one of its lanes."""
        if self._owns(self.seat.weights[0]):
            return
        others = {id(other): other for w in self.seat.weights if (other := _owner(w)) is not None and other is not self}
        if any(other.begun and (other.winner is None or self.begun) for other in others.values()):
            raise UnsupportedError(
                "Another race trains these parameters, and the model holds one of its lanes; let one race train them, "
                "or delete the other one, or make the model anew."
            )

    def _owns(self, weight: Tensor) -> bool:
        return _owner(weight) is self

    def _claim(self) -> None:
        """From now on this race trains the weights."""
        if not self._owns(self.seat.weights[0]):
            me = weakref.ref(self)
            for w in self.seat.weights:
                _owners[w] = me

    def begin_values(self) -> None:
        """Remember the model before its first forward pass in training, which changes the buffers of batch norm."""
        if self.start is None and not self.begun:
            self.start = self.seat.saved()

    def _begin(self) -> None:
        """Park every lane at the start; the first one trains."""
        now = self.seat.saved()
        self.start = {**now, "buffers": (self.start or now)["buffers"]}
        for lane in self.racing:
            if callable(train := getattr(lane.optimizer, "train", None)):
                train()  # as schedulefree's optimizers need it
            lane.parked = self.seat.unused(lane)
        if not self.slots:
            self._end_race()
            self._free()
        self.begun = True

    # --- the end of a turn --------------------------------------------------------------------------------------------

    def _settle(self, end: Callable[[], None]) -> None:
        """End a turn or a window; if `end` raises, the lane in the model keeps it, and the next step ends the turn."""
        before = {name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()}
        lanes = [(lane, {name: getattr(lane, name) for name in OF_LANES}) for lane in self.lanes]
        try:
            end()
        except BaseException:
            torn = self.torn
            vars(self).update(before)
            for lane, values in lanes:
                vars(lane).update(values)
            self.torn = torn
            if torn:
                self._mend()
            raise
        self.torn = False
        self._free()

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

    def _read(self) -> tuple[list[float], bool]:
        """The losses since the last look, as all processes see them, and whether they and the weights are finite."""
        values, self.values, self.turn_step = self.values, [], 0
        weights = [w for w in self.seat.weights if w.is_floating_point() or w.is_complex()]
        device = weights[0].device
        norms = torch.stack([torch.linalg.vector_norm(w.detach(), dtype=_exact(w)).to(device) for w in weights])
        parts = [torch.as_tensor(value, dtype=torch.float32, device=device).reshape(()) for value in values]
        found = self.processes.mean(torch.stack([*parts, norms.sum().float()])).tolist()
        return found[:-1], all(map(math.isfinite, found))

    def _end_turn(self) -> None:
        losses, finite = self._read()
        lane = self.here
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
        rule = self.plan.rounds[self.round]
        scores = {id(lane): self._score(lane, fresh) for lane in self.racing}
        if self.judge is not None:
            fresh = True
        ranked = self._ranked(scores, across=rule.across)
        for lane in self.racing:
            lane.loss, lane.losses = scores[id(lane)].mean, []
        kept = self._kept(ranked, scores, rule.keep, across=rule.across)
        self.leader = min((k for k in ranked if k in kept), key=lambda lane: scores[id(lane)].mean)
        for lane in ranked:
            if lane not in kept:
                better = next(k for k in ranked if k in kept and (rule.across or k.group == lane.group))
                self._drop(lane, _why(lane, better))
        self.round, self.slot = self.round + 1, 0
        if self.round == len(self.plan.rounds) or len(self.racing) == 1:
            self.baseline = scores[id(self.leader)]
            self._end_race(fresh=fresh)
            return
        self.racing.sort(key=lambda lane: lane is not self.here)  # the lane in the model goes on, if it may
        self.slots = self._slots()
        self._seat(self.slots[0][0], fresh=fresh)

    def _ranked(self, scores: dict[int, Score], *, across: bool) -> list[Lane]:
        """The lanes, the best first. Of a kind, the first in the list stays first unless another is clearly better."""
        found = sorted(self.racing, key=lambda lane: scores[id(lane)].mean)
        if self.judge is not None or across:
            return found
        for group in {lane.group for lane in found}:
            favourite = next(lane for lane in self.lanes if lane.group == group)
            if favourite not in found:
                continue
            mine = scores[id(favourite)]
            best = next(
                lane
                for lane in found
                if lane is favourite
                or (
                    lane.group == group
                    and beats(scores[id(lane)], mine, self.first_loss, farther=lane.is_larger_than(favourite))
                )
            )
            found.sort(key=lambda lane, best=best: lane is not best)  # type: ignore[misc]
        return found

    @staticmethod
    def _kept(ranked: list[Lane], scores: dict[int, Score], keep: int, *, across: bool) -> list[Lane]:
        """The lanes that go on; the user's own one only yields to a lane that is better by more than the noise."""
        if not across:
            found = []
            for group in {lane.group for lane in ranked}:
                found += [lane for lane in ranked if lane.group == group][:keep]
            return found
        own, best = next((lane for lane in ranked if lane.own), None), ranked[0]
        if own is not None:
            mine, other = scores[id(own)], scores[id(best)]
            if math.isfinite(mine.mean) and mine.mean - other.mean <= noise(mine, other):
                return [own]
        return ranked[:keep]

    def _score(self, lane: Lane, fresh: bool) -> Score:
        if self.judge is None:
            return score_of(lane.losses)
        self._seat(lane, fresh=fresh and lane is self.here)
        self.torn = True
        value = self.judged()
        self._bring(lane)
        return Score(value if math.isfinite(value) else math.inf)

    def judged(self) -> float:
        """What `judge` says of the model as it is; random numbers come back, and so do the modes of its modules."""
        assert self.judge is not None
        modes = [(module, module.training) for module in self.seat.model.modules()]
        devices = [w.device for w in self.seat.weights[:1] if w.device.type == "cuda"]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                value = self.judge(self.seat.model)
        finally:
            for module, mode in modes:
                module.training = mode
        number = _single(value)
        if number is None:
            raise SettingError(
                f"judge returned {value!r}, and must return one number, the lower the better, such as a validation "
                "loss."
            )
        return float(self.processes.mean(torch.tensor([number], device=self.seat.weights[0].device)))

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
        winner.losses, self.kept_at = [], self.step
        if self.judge is not None and winner.loss is not None:
            self.judged_best, self.judged_last, self.judged_at = winner.loss, winner.loss, self.step
            self.judged_model = copied(winner.parked["model"], lambda tensor, _: tensor.clone())
        if winner.scheduler is not None:
            for _ in range(self.step - winner.steps):
                winner.scheduler.step()

    def _free(self) -> None:
        """After the race, free what the others have."""
        if self.winner is not None:
            for lane in self.lanes:
                if lane is not self.winner and (lane.parked is not None or lane.average is not None):
                    lane.parked = lane.average = lane.scheduler = None
                    lane.optimizer.state.clear()

    # --- after the race -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at the winner's last losses: keep a snapshot, or go back to it."""
        losses, finite = self._read()
        winner = self.here
        if not finite:
            winner.failures += 1
            self._go_back()
            if winner.failures >= FAILURES:
                self.rate = self.rate / 3 if self.rate > 1 / 3**ROLLBACKS else 1.0
            return
        winner.failures = 0
        if self.judge is not None:
            self._judge_winner()
        unknown = self.judge is not None or len(losses) < 2
        now = Score.of(losses)
        if not unknown and self._has_risen(now):
            return
        age, least = self.step - self.kept_at, max(WINDOW, KEPT * (self.total or self.step))
        good = unknown or self.best is None or now.mean <= self.best.mean + noise(now, self.best)
        if age >= (least if good else STALE * least):
            self.seat.park(winner)
            self.kept_at = self.step

    def _judge_winner(self) -> None:
        """Ask `judge` about what the race would hand over now; the run ends with the model that it liked best."""
        last = self.step == self.total
        if not last and self.step - self.judged_at < max(WINDOW, JUDGED_EVERY * (self.total or self.step)):
            return
        own = self.seat.saved()
        self._show(own)
        shown = self.seat.saved()
        self.judged_last, self.judged_at = self.judged(), self.step
        if math.isfinite(self.judged_last) and (self.judged_best is None or self.judged_last <= self.judged_best):
            self.judged_best, self.judged_model = self.judged_last, shown
        self.seat.load(self.judged_model if last and self.judged_model is not None else own)

    def _has_risen(self, now: Score) -> bool:
        """Whether the winner is worse than at the race's end, after it had been better; if so, go back."""
        if self.baseline is None:
            self.baseline = now
        before, best = self.baseline, self.best
        lost = (
            best is not None
            and best.mean < before.mean - noise(best, before)
            and now.mean > before.mean + noise(now, before)
        )
        self.risen = self.risen + 1 if lost else 0
        if best is None or now.mean < best.mean:
            self.best = now
        if self.risen > 1 and self.rollbacks <= ROLLBACKS:
            self.rollbacks += 1
            self.risen = 0
            if self.rollbacks <= ROLLBACKS:
                self._go_back()
                self.rate, self.kept_at = self.rate / 3, self.step
            else:  # smaller rates did not help, so the objective has changed
                self.rate = 1.0
        return lost

    def _go_back(self) -> None:
        """Return to the last snapshot."""
        self._bring(self.here)

    def finish(self, steps: int) -> None:
        """Let the rates fall to zero over the next steps; a race that is under way ends now."""
        shown = self.aside is not None
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
        losses, finite = self._read()
        if finite:
            self.here.losses = self.here.losses + losses
            self.seat.park(self.here)
        self._close(fresh=finite)

    def _close(self, *, fresh: bool) -> None:
        """End the race before its last round does."""
        if self.judge is None and all(lane.losses for lane in self.racing):
            scores = {id(lane): score_of(lane.losses) for lane in self.racing}
            ranked = sorted(self.racing, key=lambda lane: scores[id(lane)].mean)
            self.leader = self._kept(ranked, scores, 1, across=True)[0]
            for lane in self.racing:
                lane.loss = scores[id(lane)].mean
        self._end_race(fresh=fresh)

    def add(self, group: dict[str, Any], rate: float | None) -> None:
        """Add parameters to every lane, also to those that are parked."""
        new = list(group["params"])
        base = self.lanes[0].rates[0]
        for lane in self.lanes:
            own = lane.rates[0]
            settings = {} if rate is None or own is None or not base else {"lr": own * rate / base}
            known = lane.optimizer.defaults
            values = {name: v for name, v in group.items() if name in known and name != "lr"} if lane.own else {}
            lane.optimizer.add_param_group({**values, **settings, "params": new})
            added = lane.optimizer.param_groups[-1]
            lane.rates.append(added.get("lr"))
            lane.factor = math.nan
            if lane.average is not None and lane.average.tensors:
                lane.average.tensors += Average.first(new)
            if lane.parked is not None:
                lane.parked["optimizer"]["groups"].append({k: v for k, v in added.items() if k != "params"})
                if lane.parked["model"] is not None:
                    lane.parked["model"]["weights"] += [hosted(p) for p in new]
                if lane.parked["average"] is not None and lane.parked["average"]["count"]:
                    lane.parked["average"]["tensors"] += [hosted(p) for p in Average.first(new)]
        for saved in (self.start, self.aside):
            if saved is not None:
                saved["weights"] += [hosted(p) for p in new]
        self.seat.weights += new

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Put what the race would hand over now into the model: the leader's average, with its last buffers."""
        if self.aside is not None or not self.begun:
            return
        self.aside = self.seat.saved()
        if self.judged_model is not None and self.judged_best is not None and self.judged_last > self.judged_best:
            self.seat.load(self.judged_model)
        else:
            self._show(self.aside)

    def _show(self, own: dict[str, Any]) -> None:
        """Put the leader's average into the model; `own` is what the model holds now."""
        leader = self.leader
        if leader is self.here:
            shown = dict(own)
            average = leader.average.saved() if leader.average else None
        else:
            assert leader.parked is not None
            assert self.start is not None
            shown = dict(leader.parked["model"] or self.start)
            average = leader.parked["average"]
        if average is not None and average["count"]:
            shown["weights"] = average["tensors"]
        self.seat.load(shown)

    def resume(self) -> None:
        """Put the weights back that train."""
        if self.aside is not None:
            self.seat.load(self.aside)
            self.aside = None


def _number(loss: Tensor | float) -> Tensor | float:
    """A copy of a loss, which later passes cannot change."""
    return loss.detach().to(torch.float32, copy=True).reshape(()) if isinstance(loss, Tensor) else float(loss)


def _mean(losses: Sequence[Tensor | float]) -> Tensor:
    """The mean of the losses that are finite: those of steps that a scaler skips are not."""
    device = next((loss.device for loss in losses if isinstance(loss, Tensor)), None)
    values = torch.stack([torch.as_tensor(loss, dtype=torch.float32, device=device) for loss in losses])
    return torch.where(values.isfinite(), values, math.nan).nanmean()


def _single(value: object) -> float | None:
    """A value as one real number; None if it is none."""
    if isinstance(value, str | bytes) or value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return None


def _owner(weight: Tensor) -> Contest | None:
    """The contest that trains a weight."""
    owner = _owners.get(weight)  # type: ignore[no-untyped-call]  # torch's
    return None if owner is None else owner()


def _exact(weight: Tensor) -> torch.dtype | None:
    return torch.float32 if weight.dtype in (torch.float16, torch.bfloat16) else None


def _why(lane: Lane, better: Lane) -> str:
    mine, other = lane.loss, better.loss
    if mine is not None and other is not None and mine <= other:
        return f"its loss {_shown(mine)} is not clearly better than {_shown(other)} of {better.name}"
    return f"its loss {_shown(mine)} is worse than {_shown(other)} of {better.name}"


def _shown(loss: float | None) -> str:
    return "no finite loss" if loss is None or not math.isfinite(loss) else f"{loss:.4g}"
