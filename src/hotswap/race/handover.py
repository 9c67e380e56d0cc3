"""The model that a race would hand over now: the average of the leader, or the model that the judge liked best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hotswap.errors import SettingError, UnsupportedError
from hotswap.race.judging import LEAST
from hotswap.race.lane import Lane, Seat
from hotswap.race.losses import single
from hotswap.race.processes import Processes, reshard
from hotswap.race.winner import WINDOW

__all__ = ["JUDGED_EVERY", "Handover"]

JUDGED_EVERY = 0.05
"""Share of the run from one judgement of the winner to the next; without a length, of the steps so far."""


class Handover:
    """Show and judge the model that a race would hand over.

    Args:
        seat: the model.
        judge: a function of the model, the lower the better; None if training losses decide.
        processes: those that train the model together.
    """

    def __init__(self, seat: Seat, judge: Callable[[nn.Module], float] | None, processes: Processes) -> None:
        self.seat, self.judge, self.processes = seat, judge, processes
        self.aside: dict[str, Any] | None = None  # the values that train, while the model shows others
        self.best: float | None = None  # the best judgement of the winner
        self.model: dict[str, Any] | None = None  # the model with the best judgement
        self.last, self.judged_at = math.inf, 0

    def evaluate(self, leader: Lane, here: Lane, start: dict[str, Any] | None) -> None:
        """Put the model that the race would hand over now into the seat, and keep aside the values that train.

        Args:
            leader: the lane that is ahead.
            here: the lane in the model.
            start: the model before the first step, for a leader that has taken none.
        """
        if self.aside is not None:
            return
        self.aside = self.seat.saved()
        if self.model is not None and self.best is not None and self.last > self.best:
            self.seat.load(self.model)
        else:
            self._show(leader, self.aside if leader is here else None, start)

    def resume(self) -> None:
        """Put the values back that train."""
        if self.aside is not None:
            self.seat.load(self.aside)
            self.aside = None

    def judged(self) -> float:
        """The judgement of the model as it is: the mean over all processes, which wait for one that raises an error."""
        number, failure = math.nan, None
        try:
            number = self._said()
        except Exception as error:
            failure = error
        said = torch.tensor([1.0, number, failure is not None], device=self.seat.weights[0].device)
        count, total, failures = self.processes.total(said).tolist()
        if failure is not None:
            raise failure
        if failures:
            raise UnsupportedError("judge raised an error in another process of this training; see its error there.")
        return float(total / count)

    def _said(self) -> float:
        """The judge's number in this process. The random numbers and the modes of the modules are restored."""
        assert self.judge is not None
        modes = [(module, module.training) for module in self.seat.model.modules()]
        devices = [w.device for w in self.seat.weights[:1] if w.device.type == "cuda"]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                value = self.judge(self.seat.model)
        finally:
            for module, mode in modes:
                module.training = mode
            reshard(self.seat.model)
        number = single(value)
        if number is None:
            raise SettingError(
                f"judge returned {value!r}, and must return one number, the lower the better, such as a validation "
                "loss."
            )
        return number

    def begin(self, judgement: float, model: dict[str, Any], step: int) -> None:
        """Keep the winner as it was judged when the race ended."""
        self.best, self.last, self.model, self.judged_at = judgement, judgement, model, step

    def judge_winner(self, winner: Lane, step: int, total: int | None) -> None:
        """Judge the winner's average from time to time; the run ends with the model that was liked best."""
        last = step == total
        if not last and step - self.judged_at < max(self.window(total), JUDGED_EVERY * (total or step)):
            return
        self.aside = self.seat.saved()
        self._show(winner, self.aside, None)
        shown = self.seat.saved()
        self.last, self.judged_at = self.judged(), step
        if math.isfinite(self.last) and (self.best is None or self.last <= self.best):
            self.best, self.model = self.last, shown
        if last and self.model is not None:
            self.aside = self.model
        self.resume()

    def window(self, total: int | None) -> int:
        """Steps of the winner from one look to the next; in a short run with a judge there are more looks."""
        if self.judge is None or total is None:
            return WINDOW
        return min(WINDOW, max(LEAST, round(JUDGED_EVERY * total)))

    def _show(self, lane: Lane, own: dict[str, Any] | None, start: dict[str, Any] | None) -> None:
        """Put a lane's average into the model; `own` is the model's values if the lane has it."""
        average = lane.average.saved() if own is not None and lane.average is not None else None
        if own is None and lane.parked is not None:
            own, average = lane.parked["model"] or start, lane.parked["average"]
        if own is None:
            return
        if average is not None and average["count"]:
            own = {**own, "weights": average["tensors"]}
        self.seat.load(own)
