"""Trials that leave no trace: a closure's loss at other parameters, as if it had never been evaluated there.

    with trials:
        start = trials.gradient_pass(request)    # f(θ; B) and g(θ; B)
        to_beat = trials.loss_to_beat(arm)       # f at θ as the trials of an arm see it
        trials.save()                            # θ and g are kept
        loss = trials.loss_at(arm)               # f at an arm's candidate, such as θ − α g, as often as one likes
        trials.expected_decrease()               # ⟨g, θ − θ′⟩ there, where a search needs it
        trials.take(arm)                         # the parameters stay there, and the base's state advances once

Whatever happens inside, at the end

- the parameters are at the arm that was taken, and where none was (an exception, say), at θ, bit for bit;
- the base optimizer's state has advanced exactly once if `take` was called, and else not at all; but for bases whose
  direction is a step of theirs, Adam and its kin, whose moments have seen the gradient when the search begins;
- random generators and module buffers are as the gradient pass left them, and all evaluations started from the same;
- `.grad` holds the gradients of the start point, and the next step knows them again;
- hyperparameters that a function of the user's sets are those of the arm that was taken, or as before;
- all processes of the group have seen the same losses.

A step without trials is `gradient_pass(request, trials=False)` and `take_untried(arm)`. It keeps no copy of anything:
where the base's own step raises, the parameters are where that left them.

Beside this file: `closures` (how a closure is evaluated), `surroundings` and `modules` (random numbers and buffers),
`gradients`, `moves` (candidates and the way back), `processes`, `setters` and `failures`. Nothing here knows about
bandits or searches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim.closures import (
    Closure,
    LossReader,
    Request,
    evaluate_trial,
    in_trial,
    leave_trial,
    run_gradient_pass,
    scalar,
)
from hotswap.optim.failures import is_of_the_rate
from hotswap.optim.gradients import Clipping, LossScale, OldGradients
from hotswap.optim.moves import LOW_PRECISION, Move, step_of_base, with_values
from hotswap.optim.processes import local
from hotswap.optim.records import applied
from hotswap.optim.setters import Setters
from hotswap.optim.surroundings import Surroundings
from hotswap.optim.user_warnings import (
    warn_of_added_gradients,
    warn_of_another_loss,
    warn_of_discarded_gradients,
    warn_of_own_backward,
    warn_of_raising_trial,
    warn_of_the_same_loss,
)

__all__ = ["CHECKED_SEARCHES", "ClosureChecks", "StartPoint", "Trials"]

NO_CONTEXT = nullcontext()

CHECKED_SEARCHES = (1, 10, 100)
"""The searches at which a closure is evaluated once more at the start point. A network that has learned nothing gives
nearly the same loss for whatever it sees, so the first search alone would show little."""


@dataclass
class ClosureChecks:
    """The checks of the user's closure that are due, and the warnings that were given. Each warning is given once."""

    enabled: bool = True
    """Whether the closure is checked for giving the same loss twice."""
    searches: int = 0
    warned: set[str] = field(default_factory=set)

    def first_time(self, warning: str) -> bool:
        """Whether a warning is due: it was not given before."""
        first = warning not in self.warned
        self.warned.add(warning)
        return first


class StartPoint(NamedTuple):
    """The start point of a step."""

    loss: Tensor
    """The loss of the gradient pass in this process, detached."""
    seen: float
    """The mean of it over all processes. Where others ran the backward, the loss that they give."""
    aux: object
    """The second value of the closure, beside its loss."""
    overflow: bool = False
    """Whether there is no gradient to walk along, because the loss scale was too large for it."""


class Trials:
    """Evaluates closures at candidate parameters of one optimizer. See the module's docstring for the guarantees.

    Args:
        base: the optimizer whose parameters move; it has no step hooks.
        move: how the parameters get to an arm's candidate and back.
        surroundings: random numbers and buffers.
        clipping: shortens the gradient before any candidate is computed from it.
        loss_scale: multiplies the loss before the backward pass; None for none.
        checks: of the closure, and the warnings that were given before.
        setters: of hyperparameters that are not the base's.
    """

    def __init__(
        self,
        base: Optimizer,
        move: Move,
        surroundings: Surroundings,
        *,
        clipping: Clipping,
        loss_scale: LossScale | None,
        checks: ClosureChecks,
        setters: Setters,
    ) -> None:
        self.base, self.move, self.surroundings, self.agreement = base, move, surroundings, move.agreement
        self.clipping, self.loss_scale, self.checks, self.setters = clipping, loss_scale, checks, setters
        self.is_open = False
        """Whether a step, or a gradient pass of the user's, is going on."""
        self.made: list[tuple[int, float]] = []
        """Arm and loss of each trial of the latest step, in order."""
        self.start_evaluations = 0
        """The number of evaluations of the start point in the latest step for an arm that sets other values."""
        self.to_beat: float | None = None
        """The loss that the trials of the latest step had to beat; None until it is asked for."""
        self.judge_apart = False
        """Whether the latest step's trials evaluate another closure than its gradient pass."""
        self._old, self._reader = OldGradients(), LossReader()
        self._saving = self.taken = self._inside = False
        """Whether `save` was begun, whether `take` came to its end, and whether the step began in another's trial."""
        self.arm: int | None = None
        """The arm that was taken; None for no step."""
        self._arm: int | None = None
        """The arm whose candidate the parameters are at; None for any other place."""
        self._start: StartPoint | None = None
        self._raised = False
        """Whether the closure has raised at a trial of this step, in this process."""
        self._given: Tensor | float | None = None
        """The loss at the start point, with the values in force, as the user says."""
        self._trial_closure: Any = None
        """Judges the trials; None while there was no gradient pass."""
        self._needs_grad = False
        """Whether the trial closure runs a backward of its own."""
        self._parameters: list[Tensor] = []
        """All that the base had at the start of the step, once it has gradients."""
        self._recorded = True
        """Whether trials see the random numbers and buffers that the gradient pass saw."""

    def parameters(self) -> list[Tensor]:
        """All parameters of the base optimizer."""
        found: list[Tensor] = []
        for group in self.base.param_groups:
            found += group["params"]
        return found

    # --- one step -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Refuse a step inside of another one, and forget the one before."""
        if self.is_open:
            raise ClosureError("step() was called from inside of its own closure or gradient pass; call it after them.")
        self._saving, self.taken, self._inside = False, False, in_trial()

    def __enter__(self) -> Trials:
        self.begin()
        base = self.base
        if base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks:
            raise UnsupportedError(
                f"The base optimizer, {type(base).__name__}, has a step hook, which would run at trials or not at all; "
                "register it on the hot-swapped optimizer, whose steps are the real ones."
            )
        self.is_open, self._arm, self.made = True, None, []
        self._raised = False
        self.start_evaluations, self.to_beat, self.judge_apart = 0, None, False
        self.agreement.look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_open = False
        self._trial_closure, self._start, self._given = None, None, None  # they hold tensors
        if kind is not None:
            self._reader.forget()
            leave_trial(self._inside)
        try:
            if self._saving and not self.taken:
                self.move.back()
            if self.taken:
                self.setters.keep()
            elif self.setters.names:
                self.setters.back()
        finally:
            if self._saving:
                self.move.forget()
            if self._parameters:
                self._old.mark(self._parameters)
                self._parameters = []
            self.surroundings.finish()

    def gradient_pass(self, request: Request, *, trials: bool = True) -> StartPoint:
        """The loss and its gradient at the parameters as they are. Without `trials`, nothing is kept for any."""
        if request.closure is None:
            start = self._start_from_gradients(request, trials=trials)
        else:
            start = self._start_from_closure(request.closure, request, trials=trials)
        if self.agreement.several:
            start = start._replace(seen=self.agreement.mean(start.seen))
        self._start = start
        return start

    def _start_from_closure(self, closure: Closure, request: Request, *, trials: bool) -> StartPoint:
        parameters, surroundings = self.parameters(), self.surroundings
        writes = self._old.writes(parameters)
        unused = writes is None or writes > 0
        if not trials:
            surroundings.drop(in_step=True)
        with surroundings.recording(parameters, restart=True) if trials else NO_CONTEXT:
            passed = run_gradient_pass(closure, parameters, self.loss_scale, unused=unused, reader=self._reader)
            if request.after_backward is not None:
                with torch.enable_grad():
                    request.after_backward()
        self._parameters, self._recorded = parameters, True
        if unused and not passed.by_closure:
            again = not self.checks.first_time("other gradients")  # at first they may be left from a training before
            if again and self.checks.first_time("discarded gradients"):
                warn_of_discarded_gradients()
        self._needs_grad = False
        if not trials:
            pass
        elif request.trial_closure is None:
            if passed.by_closure and self.checks.first_time("own backward"):
                warn_of_own_backward()
            self._trial_closure, self._needs_grad = closure, passed.by_closure
        else:
            self._trial_closure, self.judge_apart, self._given = request.trial_closure, True, request.loss
        return StartPoint(passed.loss, self._reader.read(passed.loss), passed.aux, passed.overflow)

    def _start_from_gradients(self, request: Request, *, trials: bool) -> StartPoint:
        """Start from gradients that are in `.grad` already."""
        parameters = self.parameters()
        if self.loss_scale is not None:
            raise ClosureError(
                "With loss_scale the optimizer has to run the backward pass, but step(trial_closure=..., loss=...) "
                "brings gradients of its own; pass a closure, or leave loss_scale out."
            )
        if self._old.writes(parameters) == 1 and self.checks.first_time("added gradients"):
            warn_of_added_gradients()
        self._parameters, self._recorded = parameters, self.surroundings.recorded
        if trials:
            self.surroundings.record_here(parameters)
        else:
            self.surroundings.drop()
        if request.loss is None:
            raise ClosureError(
                "step(trial_closure=...) needs the loss at the start point: pass loss=..., or a closure that gives it."
            )
        if all(parameter.grad is None for parameter in parameters):
            raise ClosureError(
                "step(trial_closure=...) needs a gradient, but no parameter has one in .grad: call backward() before, "
                "or pass a closure and let the optimizer do it."
            )
        loss = scalar(request.loss, "step(loss=...)").detach()
        assert request.trial_closure is not None  # an empty request makes no step
        self._trial_closure, self._needs_grad = request.trial_closure, False
        return StartPoint(loss, loss.item(), None)

    def loss_to_beat(self, arm: int) -> float:
        """The loss that the trials of an arm, and of all that set the same values, are compared with: the one that they
        evaluate, at the start point, as all processes see it. To be asked for before `save`."""
        start = self._start
        assert start is not None  # there was a gradient pass
        changed = False
        if self.setters.names:
            before = dict(self.setters.now)
            self.setters.to(arm)
            changed = self.setters.now != before
            self.start_evaluations += changed
        if changed or (self.judge_apart and self._given is None):
            self.to_beat = self._evaluate_at_start()
        elif self._given is not None:
            self.to_beat = self.agreement.mean(scalar(self._given, "step(loss=...)").item())
        else:
            self.to_beat = start.seen
        return self.to_beat

    def save(self) -> None:
        """Keep θ and g, clipped: from now on the parameters can be moved, and are moved back if nothing is taken."""
        self._saving = True
        if self.clipping.active:
            self.move.refuse_infinite(self._parameters)
            self.clipping(self._parameters)
        self.move.prepare()
        self.move.hide_gradients()

    @property
    def can_move(self) -> bool:
        """Whether any arm would move a parameter; not so while a scheduler's rate is zero."""
        for group in self.base.param_groups:  # noqa: SIM110  # `any` takes three times as long, in every step
            if group.get("lr", 1.0):
                return True
        return False

    def loss_at(self, arm: int) -> float:
        """The trial closure's loss at an arm's candidate, as all processes see it; infinite where it raises."""
        if self.setters.names:
            self.setters.to(arm)
        self.move.to(arm)
        self._arm = arm
        if self._needs_grad:
            self.move.hide_gradients()  # the trial before has left some
        with self.surroundings.rewound():
            try:
                loss = evaluate_trial(self._trial_closure, with_grad=self._needs_grad)
            except Exception as error:
                if not is_of_the_rate(error):
                    raise
                self._note_failure(arm, error)
                loss = math.inf  # in one process, so in all
            if self.agreement.several:
                loss = self.agreement.mean(loss)
        if self.move.finite_unknown:
            self.move.check_gradients()  # now that the device has been waited for anyway
        self.made.append((arm, loss))
        return loss

    def expected_decrease(self) -> float:
        """⟨g, θ − θ′⟩ for the latest trial's θ′, as all processes see it; see `Move.expected`."""
        assert self._arm is not None  # there was a trial
        return self.move.expected(self._arm)

    def take(self, arm: int | None) -> None:
        """Stay at an arm's candidate, or at θ for None, and let the base optimizer's state advance."""
        if arm is None:
            self.restore()
            self.move.check_gradients()
            self._check_that_not_all_raise()
            self._check_that_losses_differ()
            self.setters.back()
        elif arm != self._arm:
            if self.setters.names:
                self.setters.to(arm)
            self.move.to(arm)
        self.move.commit(arm)
        self.arm, self.taken = arm, True
        self.setters.keep()

    def take_untried(self, arm: int) -> None:
        """Let the base take one step with an arm's values, from the gradients in `.grad`, without having tried it."""
        self.surroundings.drop(in_step=self.is_open)
        if self.setters.names:
            self.setters.to(arm)
        if self.clipping.active:
            self.clipping(self.parameters())
        self.arm = arm
        with with_values(self.base, self.move.base_values(arm), self.move.scale):
            self.taken = step_of_base(self.base)
        self.setters.keep()
        if not self.is_open:
            self._old.mark(self.parameters())

    def restore(self) -> None:
        """Put the parameters back to θ, bit for bit."""
        self.move.back()
        self._arm = None

    def _evaluate_at_start(self, earlier: Tensor | None = None) -> float:
        """The trial closure's loss at the start point, without letting it touch the gradients.

        `earlier` is the loss of an evaluation before, which the closure must not return again.
        """
        parameters = self.parameters()
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            with self.surroundings.rewound():
                loss = evaluate_trial(self._trial_closure, with_grad=self._needs_grad, earlier=earlier)
                return self.agreement.mean(loss)
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    # --- checks of the closure ----------------------------------------------------------------------------------------

    def check_closure(self) -> None:
        """Before the first trial of some searches: at the same parameters the closure must give the same loss again."""
        checks, start = self.checks, self._start
        checks.searches += 1
        if not checks.enabled or checks.searches not in CHECKED_SEARCHES or "another loss" in checks.warned:
            return
        assert start is not None  # there was a gradient pass
        self.restore()
        to_beat = start.seen if self.to_beat is None else self.to_beat
        again = self._evaluate_at_start(earlier=start.loss)
        rounding = 3e-2 if start.loss.dtype in LOW_PRECISION else 1e-3
        if not math.isclose(again, to_beat, rel_tol=rounding, abs_tol=1e-6):
            checks.warned.add("another loss")
            warn_of_another_loss(to_beat, again, recorded=self._recorded)

    def _note_failure(self, arm: int, error: Exception) -> None:
        """The closure has raised at a trial, which is worth no more than an infinite loss: the start point was fine."""
        self._raised = True
        if self.checks.first_time("raising trial"):
            values = applied(self.move.arms, arm, self.move.scale(self.base.param_groups[0]))
            warn_of_raising_trial(values.items(), error)

    def _check_that_not_all_raise(self) -> None:
        """End the step if the closure raises at the start point, too, after trials that raised or had no finite loss.

        The exception is then not the rates' doing, and the step ends with it.
        """
        hopeless = self.made and not any(math.isfinite(loss) for _, loss in self.made)
        if hopeless and not self.agreement.all(not self._raised):
            self._evaluate_at_start()

    def _check_that_losses_differ(self) -> None:
        """Once, where nothing was taken: a move by a tenth of the parameters' length must show in the loss."""
        to_beat = self.to_beat
        if len(self.made) < 2 or not to_beat or not self.checks.first_time("change"):
            return
        if all(loss == to_beat for _, loss in self.made):
            self.move.to(self.made[0][0])
            moved = self.move.has_moved(0.1)
            self.restore()
            if moved:
                warn_of_the_same_loss(len(self.made))

    # --- outside of a step --------------------------------------------------------------------------------------------

    @contextmanager
    def recording(self, *, trials: bool = True) -> Iterator[None]:
        """Around a forward and backward of the user's own: the trials of the next step, if any, see what it saw."""
        self.is_open = True
        try:
            with self.surroundings.recording(self.parameters()) if trials else NO_CONTEXT:
                yield
        finally:
            self.is_open = False

    def any_gradient(self) -> bool:
        """Whether there is a gradient in `.grad` that is not 0."""
        found = [local(p.grad) for p in self.parameters() if p.grad is not None]
        values = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in found]
        return any(bool(gradient.any()) for gradient in values)
