"""The probe: a closure's loss at other parameters, as if it had never been evaluated there.

    with probe:
        start = probe.gradient_pass(request)     # f(θ; B) and g(θ; B)
        to_beat = probe.loss_to_beat(arm)        # f at θ as the trials of an arm see it
        probe.save()                             # θ and g are kept
        loss = probe.loss_at(arm)                # f at an arm's candidate, such as θ − α g, as often as one likes
        probe.expected_decrease()                # ⟨g, θ − θ′⟩ there, where a search needs it
        probe.take(arm)                          # the parameters stay there, and the base's state advances once

Whatever happens inside, at the end

- the parameters are at the arm that was taken, and where none was (an exception, say), at θ, bit for bit;
- the base optimizer's state has advanced exactly once if `take` was called, and else not at all;
- random generators and module buffers are as the gradient pass left them, and all evaluations started from the same;
- `.grad` holds the gradients of the start point, and a step knows whether gradients that it finds are its own;
- hyperparameters that a function of the user's sets are those of the arm that was taken, or as before;
- all processes of the group have seen the same losses.

A step without trials is `gradient_pass(request, trials=False)` and `take_untried(arm)`. It keeps no copy of anything:
where the base's own step raises, the parameters are where that left them.

Nothing here knows about bandits or searches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim.probing.agreement import Agreement, ProcessGroup
from hotswap.optim.probing.base_step import step_of_base
from hotswap.optim.probing.closures import Closure, Request, evaluate_trial, run_gradient_pass, scalar
from hotswap.optim.probing.failures import is_of_the_rate
from hotswap.optim.probing.gradients import NO_GRADIENTS, Clipping, LossScale
from hotswap.optim.probing.losses import LossReader
from hotswap.optim.probing.modules import BufferDict
from hotswap.optim.probing.moves import Move
from hotswap.optim.probing.moves.base import with_values
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION
from hotswap.optim.probing.moves.shards import local
from hotswap.optim.probing.snapshot import StateSnapshot
from hotswap.optim.probing.stale_gradients import OtherOptimizers, StaleGradients
from hotswap.optim.records import applied
from hotswap.optim.setters import Setters
from hotswap.optim.user_warnings import (
    warn_of_added_gradients,
    warn_of_another_loss,
    warn_of_discarded_gradients,
    warn_of_own_backward,
    warn_of_raising_trial,
    warn_of_the_same_loss,
)

__all__ = ["ClosureChecks", "Probe", "StartPoint"]

DISTRIBUTED = dist.is_available()

CHECKED_SEARCHES = (1, 10, 100)
"""The searches at which a closure is evaluated once more at the start point. A network that has learned nothing gives
nearly the same loss for whatever it sees, so the first search alone would show little."""


@dataclass
class ClosureChecks:
    """Which checks of the user's closure are due, and which warnings were given: each is given once."""

    enabled: bool = True
    """Whether the closure is checked for giving the same loss twice."""
    searches: int = 0
    warned: set[str] = field(default_factory=set)

    def first_time(self, warning: str) -> bool:
        """Whether something is to be warned of for the first time."""
        first = warning not in self.warned
        self.warned.add(warning)
        return first

    def due(self) -> bool:
        """Count one more search; whether the closure is to be checked in it."""
        self.searches += 1
        return self.enabled and self.searches in CHECKED_SEARCHES and "another loss" not in self.warned


def _nearly_the_same(loss: float, other: float, dtype: torch.dtype) -> bool:
    """Whether two losses may be those of one minibatch at the same parameters, but for rounding."""
    return math.isclose(loss, other, rel_tol=3e-2 if dtype in LOW_PRECISION else 1e-3, abs_tol=1e-6)


class StartPoint(NamedTuple):
    """The start point of a step."""

    loss: Tensor
    """The loss of the gradient pass in this process, detached."""
    seen: float
    """The same as all processes see it, their mean. Where others ran the backward, the loss that they give."""
    aux: object
    """What the closure returned beside its loss."""
    overflow: bool = False
    """Whether there is no gradient to walk along, because the loss scale was too large for it."""


class Probe:
    """Evaluates closures at candidate parameters of one optimizer. See the module's docstring for the guarantees.

    Args:
        base: the optimizer whose parameters move; it has no step hooks.
        move: how the parameters get to an arm's candidate and back.
        module: the model; None to find the modules that hold parameters, see `ModuleFinder`.
        process_group: of the processes that train together; None for the default one, False for none.
        clipping: shortens the gradient before any candidate is computed from it.
        loss_scale: multiplies the loss before the backward pass; None for none.
        checks: of the closure, and the warnings that were given before.
        setters: of hyperparameters that are not the base's; None for none.
    """

    def __init__(
        self,
        base: Optimizer,
        move: Move,
        *,
        module: nn.Module | None = None,
        process_group: ProcessGroup = None,
        clipping: Clipping | None = None,
        loss_scale: LossScale | None = None,
        checks: ClosureChecks | None = None,
        setters: Setters | None = None,
    ) -> None:
        self.base, self.move = base, move
        self.setters = Setters({}, move.arms) if setters is None else setters
        self.clipping = Clipping() if clipping is None else clipping
        self.loss_scale = loss_scale
        self.checks = ClosureChecks() if checks is None else checks
        self.is_open = False
        """Whether a step, or a gradient pass of the user's, is going on."""
        self.trials: list[tuple[int, float]] = []
        """Arm and loss of each trial of the latest step, in order."""
        self.start_evaluations = 0
        """How often the start point was evaluated in the latest step for an arm that sets other values."""
        self.to_beat: float | None = None
        """What the trials of the latest step had to beat; None until it is asked for."""
        self.judges_apart = False
        """Whether the latest step's trials evaluate another closure than its gradient pass."""
        self._snapshot, self._stale, self._reader = StateSnapshot(module), StaleGradients(), LossReader()
        self._agreement = Agreement(process_group, partial(_device_of, base))  # no way back to here
        self._several = False
        """Whether there are other processes to agree with."""
        self._saving = self._saved = self._taken = False
        """Whether `save` was begun and came to its end, and whether `take` did."""
        self._arm: int | None = None
        """The arm whose candidate the parameters are at; None for any other place."""
        self._start: StartPoint | None = None
        self._others = OtherOptimizers()
        self._raised = False
        """Whether the closure has raised at a trial of this step, in this process."""
        self._given: Tensor | float | None = None
        """What the user says that it is, with the values in force."""
        self._trial_closure: Closure = _no_closure
        self._needs_grad = False
        """Whether the trial closure runs a backward of its own."""
        self._unrounded: Mapping[int, Tensor] = NO_GRADIENTS
        self._parameters: list[Tensor] = []
        """All that the base had at the start of the step."""
        self._recorded = True
        """Whether trials see the random numbers and buffers that the gradient pass saw."""

    def parameters(self) -> list[Tensor]:
        """All parameters of the base optimizer."""
        return [parameter for group in self.base.param_groups for parameter in group["params"]]

    # --- one step -----------------------------------------------------------------------------------------------------

    def refuse_if_open(self) -> None:
        """Raise an error where a step begins inside of another one."""
        if self.is_open:
            raise ClosureError("step() was called from inside of its own closure or gradient pass; call it after them.")

    def __enter__(self) -> Probe:
        base = self.base
        self.refuse_if_open()
        if base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks:
            raise UnsupportedError(
                f"The base optimizer, {type(base).__name__}, has a step hook, which would run at trials or not at all; "
                "register it on the hot-swapped optimizer, whose steps are the real ones."
            )
        self.is_open, self._arm, self.trials = True, None, []
        self._saving = self._saved = self._taken = self._raised = False
        self.start_evaluations, self.to_beat, self.judges_apart = 0, None, False
        self._several = DISTRIBUTED and dist.is_initialized() and self._agreement.active()
        self.move.agree = self._agree_on_shards if self._several else None
        self.move.mean = self._agreement.mean if self._several else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_open, self.move.agree = False, None  # which leads back to here
        self._trial_closure, self._unrounded, self._start = _no_closure, NO_GRADIENTS, None  # they hold tensors
        self._given = None
        if kind is not None:
            self._reader.forget()
        try:
            if self._saved and not self._taken:
                self.move.back()
            self.setters.back()
        finally:
            if self._saving:
                self.move.forget()
            self._stale.mark_used(self._parameters)
            self._parameters = []
            self._snapshot.finish()

    def gradient_pass(self, request: Request, *, trials: bool = True, survey: bool = False) -> StartPoint:
        """The loss and its gradient at the parameters as they are.

        Without `trials`, nothing is kept for any. A `survey` notices all the same which modules have buffers that
        change.
        """
        if request.closure is None:
            start = self._start_from_gradients(request, trials=trials)
        else:
            start = self._start_from_closure(request.closure, request, trials=trials, survey=survey)
        if self._several:
            start = start._replace(seen=self._agreement.mean(start.seen))
        self._start = start
        return start

    def loss_to_beat(self, arm: int) -> float:
        """What the trials of an arm, and of all that set the same values, are compared with: the loss that they
        evaluate, at the start point, as all processes see it. To be asked for before `save`."""
        start = self._start
        assert start is not None  # there was a gradient pass
        before = dict(self.setters.now)
        self.setters.to(arm)
        if self.setters.now != before:
            self.start_evaluations += 1
            self.to_beat = self._evaluate_at_start()
        elif not self.judges_apart:
            self.to_beat = start.seen
        elif self._given is not None:
            given = scalar(self._given, "step(loss=...)").item()
            self.to_beat = self._agreement.mean(given) if self._several else given
        else:
            self.to_beat = self._evaluate_at_start()
        return self.to_beat

    def save(self) -> None:
        """Keep θ and g, clipped: from now on the parameters can be moved, and are moved back if nothing is taken."""
        self._saving = True
        if self.clipping.active:
            parameters = self.parameters()
            self.move.refuse_infinite(parameters)
            self.clipping(parameters, self._unrounded)
        self.move.prepare(self._unrounded)
        self._saved = True
        self.move.hide_gradients()

    @property
    def can_move(self) -> bool:
        """Whether any arm would move a parameter; not so while a scheduler's rate is zero."""
        for group in self.base.param_groups:  # noqa: SIM110  # `any` takes three times as long, in every step
            if group.get("lr", 1.0):
                return True
        return False

    def any_gradient(self) -> bool:
        """Whether there is a gradient in `.grad` that is not 0."""
        found = [local(p.grad) for p in self.parameters() if p.grad is not None]
        values = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in found]
        return any(bool(gradient.any()) for gradient in values)

    def loss_at(self, arm: int) -> float:
        """The trial closure's loss at an arm's candidate, as all processes see it; infinite where it raises."""
        loss = self._evaluate(arm)
        if self.move.finite_unknown:
            self.move.check_gradients()  # now that the device has been waited for anyway
        self.trials.append((arm, loss))
        return loss

    def expected_decrease(self) -> float:
        """⟨g, θ − θ′⟩ for the latest trial's θ′, as all processes see it; see `Move.expected`."""
        if self._arm is None:
            raise ClosureError("There is no trial yet whose decrease could be expected: call loss_at() before.")
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
            self.setters.to(arm)
            self.move.to(arm)
        self.move.commit(arm)
        self.setters.keep()
        self._taken = True

    def take_untried(self, arm: int) -> None:
        """Let the base take one step with an arm's values, from the gradient pass on, without having tried it."""
        self._snapshot.drop()
        self.setters.to(arm)
        self._step_of_the_base(arm)
        self.setters.keep()
        self._taken = True

    def _step_of_the_base(self, arm: int) -> None:
        if self.clipping.active:
            self.clipping(self.parameters(), self._unrounded)
        with (
            self.move.masters.stepped(self.base, self._unrounded),
            with_values(self.base, self.move.base_values(arm), self.move.scale),
        ):
            step_of_base(self.base)

    def restore(self) -> None:
        """Put the parameters back to θ, bit for bit."""
        self.move.back()
        self._arm = None

    def _evaluate(self, arm: int | None, earlier: Tensor | None = None) -> float:
        """The trial closure's loss at an arm's candidate, or where the parameters are.

        `earlier` is the loss of an evaluation before, which the closure must not return again.
        """
        if arm is not None:
            self.setters.to(arm)
            self.move.to(arm)
            self._arm = arm
        if self._needs_grad:
            self.move.hide_gradients()  # the trial before has left some
        with self._snapshot.rewound():
            try:
                loss = evaluate_trial(self._trial_closure, with_grad=self._needs_grad, earlier=earlier)
            except Exception as error:
                if arm is None or not is_of_the_rate(error):
                    raise
                self._note_failure(arm, error)
                loss = math.inf  # in one process, so in all
            return self._agreement.mean(loss) if self._several else loss

    def _note_failure(self, arm: int, error: Exception) -> None:
        """The closure has raised at a trial, which is worth no more than an infinite loss: the start point was fine."""
        self._raised = True
        if self.checks.first_time("raising trial"):
            values = applied(self.move.arms, arm, self.move.scale(self.base.param_groups[0]))
            warn_of_raising_trial(values.items(), error)

    def _agree_on_shards(self, holds: bool) -> bool:
        """Whether something holds of the gradients in all processes: they are the same, unless they are sharded."""
        sharded = any(local(parameter) is not parameter for parameter in self.parameters())
        return self._agreement.all(holds) if sharded else holds

    # --- the start point ----------------------------------------------------------------------------------------------

    def _start_from_closure(self, closure: Closure, request: Request, *, trials: bool, survey: bool) -> StartPoint:
        parameters = self._parameters = self.parameters()
        recorded = trials or survey
        unused = self._stale.unused(parameters)
        with self._snapshot.recording(parameters, restart=True) if recorded else self._snapshot.unrecorded():
            passed = run_gradient_pass(closure, parameters, self.loss_scale, unused, self._reader)
            if request.after_backward is not None:
                with torch.enable_grad():
                    request.after_backward()
        self._stale.by_closure = passed.by_closure
        self._unrounded, self._recorded = passed.unrounded, True
        if unused and not passed.by_closure:
            self._warn_of_discarded_gradients()
        if trials and request.trial_closure is None:
            if passed.by_closure and self.checks.first_time("own backward"):
                warn_of_own_backward()
            self._trial_closure, self._needs_grad = closure, passed.by_closure
        elif trials and request.trial_closure is not None:
            self._trial_closure, self._needs_grad = request.trial_closure, False
            self.judges_apart, self._given = True, request.loss
        return StartPoint(passed.loss, self._reader.read(passed.loss), passed.aux, passed.overflow)

    def _evaluate_at_start(self) -> float:
        """The trial closure's loss at the start point, without letting it touch the gradients."""
        parameters = self.parameters()
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            with self._snapshot.rewound():
                loss = evaluate_trial(self._trial_closure, with_grad=self._needs_grad)
                return self._agreement.mean(loss) if self._several else loss
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    def _start_from_gradients(self, request: Request, *, trials: bool) -> StartPoint:
        """Start from gradients that are in `.grad` already."""
        parameters = self._parameters = self.parameters()
        if self.loss_scale is not None:
            raise ClosureError(
                "With loss_scale the optimizer has to run the backward pass, but step(trial_closure=..., loss=...) "
                "brings gradients of its own; pass a closure, or leave loss_scale out."
            )
        if self._stale.were_added_to(parameters) and self.checks.first_time("added gradients"):
            warn_of_added_gradients()
        self._stale.by_closure = False
        self._recorded = self._snapshot.recorded
        if trials:
            self._snapshot.record_here(parameters)
        else:
            self._snapshot.drop()
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
        self._trial_closure, self._needs_grad, self._unrounded = request.trial_closure, False, NO_GRADIENTS
        return StartPoint(loss, loss.item(), None)

    def _warn_of_discarded_gradients(self) -> None:
        """From the second time on: at first they may be left from whatever trained before. Where another optimizer has
        taken a step since the time before, they are left from its backward."""
        if "discarded gradients again" in self.checks.warned:
            return
        innocent = self._others.have_stepped(self._parameters)
        if not (self.checks.first_time("discarded gradients") or innocent):
            self.checks.warned.add("discarded gradients again")
            warn_of_discarded_gradients()

    # --- checks of the closure ----------------------------------------------------------------------------------------

    def check_closure(self) -> None:
        """Before the first trial of some searches: at the same parameters the closure must give the same loss again."""
        if not self.checks.due():
            return
        self.restore()
        start = self._start
        assert start is not None  # there was a gradient pass
        to_beat = start.seen if self.to_beat is None else self.to_beat
        again = self._evaluate(None, earlier=start.loss)
        if not _nearly_the_same(again, to_beat, start.loss.dtype):
            self.checks.warned.add("another loss")
            warn_of_another_loss(to_beat, again, recorded=self._recorded)

    def _check_that_not_all_raise(self) -> None:
        """Where no trial had a finite loss and the closure has raised: if it raises at the start point, too, it is not
        the rates' doing, and the step ends with that exception."""
        if not self.trials or any(math.isfinite(loss) for _, loss in self.trials):
            return
        if not (self._agreement.all(not self._raised) if self._several else not self._raised):
            self._evaluate(None)

    def _check_that_losses_differ(self) -> None:
        """Once, where nothing was taken: a move by a tenth of the parameters' length must show in the loss."""
        to_beat = self.to_beat
        if len(self.trials) < 2 or not to_beat or not self.checks.first_time("change"):
            return
        if all(loss == to_beat for _, loss in self.trials):
            self.move.to(self.trials[0][0])
            moved = self.move.has_moved(0.1)
            self.restore()
            if moved:
                warn_of_the_same_loss(len(self.trials))

    # --- outside of a step's search -----------------------------------------------------------------------------------

    @contextmanager
    def recording(self, *, trials: bool = True) -> Iterator[None]:
        """Around a forward and backward of the user's own: the trials of the next step, if any, see what it saw."""
        self.is_open = True
        try:
            with self._snapshot.recording(self.parameters()) if trials else nullcontext():
                yield
        finally:
            self.is_open = False

    def drop_recording(self) -> None:
        """Forget a recorded gradient pass that no step will use."""
        self._snapshot.drop()

    def step_without_loss(self, arm: int) -> None:
        """Let the base take one step with an arm's values, from the gradients that are in `.grad`."""
        self._snapshot.drop()
        self.setters.to(arm)
        self._step_of_the_base(arm)
        self.setters.keep()
        self._stale.by_closure = False
        self._stale.mark_used(self.parameters())

    def buffers(self) -> list[BufferDict]:
        """The dictionaries of buffers of the modules that a step looks after, outside of a step."""
        return self._snapshot.buffers(self.parameters())


def _device_of(base: Optimizer) -> torch.device:
    """Where the first parameter is."""
    first = next(parameter for group in base.param_groups for parameter in group["params"])
    device: torch.device = first.device
    return device


def _no_closure() -> object:
    raise ClosureError("There is no closure to evaluate yet: call gradient_pass() before loss_at().")
