"""HotSwap: Algorithm 2 around any torch optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.arms import Arms, Value, log_grid
from hotswap.arrays import Array
from hotswap.bandits import Bandit, BanditState, DiscountedUCB
from hotswap.errors import ClosureError, LossError, SettingError, UnsupportedError
from hotswap.optim.agreement import Group
from hotswap.optim.around import Around
from hotswap.optim.checks import check_parts, check_step, initial_lr, refuse_negative
from hotswap.optim.gradients import Clipping, LossScale, run_gradient_pass
from hotswap.optim.moves import move_for, with_values
from hotswap.optim.moves.base import NONE
from hotswap.optim.records import ArmStatistics, Statistics, StepRecord
from hotswap.optim.trials import Closure, clear_caches, evaluate_trial, scalar
from hotswap.optim.warned import (
    warn_of_added_gradients,
    warn_of_another_loss,
    warn_of_discarded_gradients,
    warn_of_no_search,
    warn_of_own_backward,
    warn_of_the_same_loss,
)
from hotswap.optim.wrapped import Given, unwrap
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Backtracking, Search

__all__ = ["HotSwap"]


CHECKED = (1, 10, 100)  # searches before which the closure is checked; each costs a forward


class _Start(NamedTuple):
    """The start point of a step: what the gradient pass gave, and what the trials have to beat."""

    loss: Tensor
    to_beat: Any
    """A number; at first perhaps still a tensor, so that nobody waits for the device before it must be known."""
    aux: object
    judge: Closure
    """What evaluates the trials."""
    judge_needs_grad: bool
    """Whether it insists on a backward of its own."""
    overflow: bool = False
    """Whether there is no gradient to walk along, because the loss scale was too large."""
    exact: Mapping[int, Tensor] = NONE
    """See `GradientPass.exact`."""
    watched: bool = True
    """Whether the gradient pass ran where trials can have its random numbers and buffers again."""


class HotSwap(Around):
    """Swap hyperparameters of `base_optimizer` while it trains, guided by a bandit and protected by a search.

        optimizer = HotSwap(torch.optim.Adam(model.parameters()), arms={"lr": log_grid(1e-1, 1e-6, 21)})
        for x, y in loader:
            loss = optimizer.step(lambda: loss_fn(model(x), y))

    Args:
        base_optimizer: turns a gradient into an update; its state advances exactly once per step.
        arms: what may be swapped, by hyperparameter name; the default is `{"lr": log_grid()}`. Arms over `lr` alone
            cost one pass over the parameters per trial if the base's step is linear in its rate, as those of SGD,
            Adam(W), RMSprop, AdaDelta and their kin are; others restore and repeat the base's step.
        bandit: proposes the arm a step starts from; the default is `DiscountedUCB()`.
        search: walks from there to smaller ones; the default is `Backtracking()`.
        reward: what a trial's loss is worth; the default is `LogReduction()`, for losses that are never negative.
        linear: whether the base's step is linear in its rate; `None` knows it for torch's own optimizers.
        clip_norm, clip_value: shorten the gradient, once, before the search walks along it.
        loss_scale: for float16: the loss is multiplied by it before the backward pass, and the gradient divided after.
            It is halved whenever a gradient overflows, and that step is left out; doubled after 2000 steps without.
        module: a module that holds none of the parameters, and whose buffers the closure changes at some later step.
            Modules that hold parameters are found, with all that is in or around them, and so are others whose buffers
            change in the first step.
        process_group: of the processes that train together: each loss is averaged over them, so that all take the same
            step. By default torch's default group, where there is one; False for none.

    The `lr` of a parameter group is the user's scale, never overwritten: a group's rate is the arm's times its `lr`
    divided by the first group's `lr` at construction. So schedulers and ratios between groups work as usual.
    """

    last_step: StepRecord | None
    """What the latest step did."""

    def __init__(
        self,
        base_optimizer: Optimizer,
        arms: Mapping[str, Iterable[Value]] | None = None,
        bandit: Bandit | None = None,
        search: Search | None = None,
        *,
        reward: Reward | None = None,
        linear: bool | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        loss_scale: float | None = None,
        module: nn.Module | None = None,
        process_group: Group = None,
    ) -> None:
        if not isinstance(base_optimizer, Optimizer):
            raise SettingError(
                f"HotSwap: the base is of type {type(base_optimizer).__name__}, not a torch.optim.Optimizer; "
                "for plain parameters use HotSwapSGD."
            )
        if isinstance(base_optimizer, HotSwap):
            raise UnsupportedError("HotSwap cannot wrap another HotSwap; name all arms in one of them.")
        self.base = base_optimizer
        if arms is not None and not isinstance(arms, Mapping):
            raise SettingError("HotSwap(arms=...): name what is swapped, as in arms={'lr': hotswap.log_grid()}.")
        self.arms = Arms.of({"lr": log_grid()} if arms is None else arms)
        self.bandit = DiscountedUCB() if bandit is None else bandit
        self.search = Backtracking() if search is None else search
        self.reward = LogReduction() if reward is None else reward
        self._clip = Clipping(clip_norm, clip_value)
        self._loss_scale = None if loss_scale is None else LossScale(loss_scale)
        self._module = module
        self._process_group = process_group
        check_parts(self)
        self._linear = linear
        self._move = move_for(base_optimizer, self.arms, initial_lr(base_optimizer), linear)
        state = base_optimizer.state
        super().__init__(base_optimizer.param_groups, base_optimizer.defaults)
        self.state = state  # what Optimizer.__init__ put there is empty
        self._bandit_state = self.bandit.start(1, len(self.arms))
        self._reward_scale = float(self.reward.start(1)[0])
        self._in_force = len(self.arms) - 1  # before the first search: the smallest
        self._searched, self._known = 0, set()
        self._begin_anew()
        self.last_step = None

    # --- one step ---------------------------------------------------------------------------------------------------

    @overload  # type: ignore[override]  # torch's closures return a float and cannot be split in two
    def step(self) -> None: ...
    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(
        self, closure: Closure, trial_closure: Closure | None = None, loss: Tensor | float | None = None
    ) -> Tensor: ...
    @overload
    def step(self, closure: None = None, *, trial_closure: Closure, loss: Tensor | float) -> Tensor: ...
    @torch._disable_dynamo  # type: ignore[attr-defined]  # compiled, a step would forget what it has learned
    @torch.no_grad()
    def step(
        self,
        closure: Closure | None = None,
        trial_closure: Closure | None = None,
        loss: Tensor | float | None = None,
    ) -> Tensor | None:
        """Search for a step and take it. Returns the loss before it, detached: in several processes this one's own,
        whereas `last_step.loss_before` is their mean.

        Args:
            closure: computes the loss, forward only, at the parameters as they are; or the pair `(loss, anything)`.
            trial_closure: judges the trials instead of `closure`. Without a `closure`, the gradients that are in
                `.grad` already are used (clear them before each backward), and `loss` is what `trial_closure` would
                give at the start point.
            loss: what `trial_closure` gives at the start point. With a `closure` it saves that evaluation; without
                one it must be given.

        Without any of them nothing is searched and nothing learned: the base optimizer takes a step with the values
        in force, which before the first search are those of the smallest arm.
        """
        if loss is not None and trial_closure is None:
            raise ClosureError(
                "step(loss=...) was called without a trial_closure: it is the trial closure's loss at the start point; "
                "pass both, or neither."
            )
        for name, function in (("closure", closure), ("trial_closure", trial_closure)):
            if function is not None and not callable(function):
                raise ClosureError(
                    f"step({name}=...) must be a function that computes the loss, but it is of type "
                    f"{type(function).__name__}; write optimizer.step(lambda: loss_fn(model(x), y))."
                )
        given = unwrap(closure)
        closure = given.closure
        if closure is None:
            given.run_hooks()
        asked, self._asked = self._asked, None
        if closure is None and trial_closure is None and asked is not None:
            trial_closure, loss = asked
        if closure is None and trial_closure is None:
            self._step_without_search()
            return None
        check_step(self.base, busy=self._busy)
        self.base._opt_called = True  # type: ignore[attr-defined]  # what schedulers that are on it ask for
        self._busy = True
        if closure is not None:
            self._guard.drop()  # a gradient pass that no step came of
        try:
            start = self._start_point(given, trial_closure, loss)
            start = start._replace(to_beat=self._agreement.mean(start.to_beat))
            self._check_start(start.to_beat)
            if start.overflow:
                self._record(0, None, start, [])
            else:
                self._go_on_from(start)
        finally:
            self._busy = False
            self._move.forget()
            self._leftovers.note(self._parameters())
            self._guard.end()
            clear_caches()
        return start.loss

    @contextmanager
    def gradient_pass(self) -> Iterator[None]:
        """For who calls `backward()` himself: evaluations in a `step(trial_closure=...)` share its random numbers.

            optimizer.zero_grad()
            with optimizer.gradient_pass():
                loss = loss_fn(model(x), y)
                loss.backward()
            optimizer.step(trial_closure=lambda: loss_fn(model(x), y), loss=loss)

        Buffers advance once, too. Where gradients of several minibatches add up, open it for each of them.
        """
        real = self._real
        real._busy = True
        try:
            with self._guard.gradient_pass(self._parameters()):
                yield
        finally:
            real._busy = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and forget a gradient pass or a search that was to come of them."""
        super().zero_grad(set_to_none)
        if not self._real._busy:  # a closure may call it, too
            self._guard.drop()
            self._real._asked = None

    def search_with(self, trial_closure: Closure, loss: Tensor | float) -> None:
        """Let the next `step()` search as `step(trial_closure=..., loss=...)` would, where a framework calls it."""
        self._real._asked = trial_closure, loss

    def _go_on_from(self, start: _Start) -> None:
        """From a start point with a gradient; whatever goes wrong, the parameters are where they were."""
        if self._clip.active:
            self._move.refuse_infinite(self._parameters())
            self._clip(self._parameters(), start.exact)
        self._move.prepare(start.exact)
        searches = any(self._move.scale(group) for group in self.param_groups)
        proposal, bandit_state = self._propose()
        try:
            if searches:
                begun, arm, trials = self._search_and_move(start, proposal.item())
            else:  # a scheduler at zero: no arm would move anything, so there is nothing to learn
                begun, arm, trials = 0, None, []
                self._move.back()
                self._move.check_gradients()
            self._move.commit(arm)
        except BaseException:
            self._move.back()
            raise
        rewards = self._learn(bandit_state, start.to_beat, trials) if searches else ()
        self._record(begun, arm, start, trials, rewards)

    def _search_and_move(self, start: _Start, proposal: int) -> tuple[int, int | None, list[tuple[int, float]]]:
        """Where the walk began, the arm that the parameters are at now, and what was tried."""
        walk = self.search.begin(proposal, start.to_beat, arms=len(self.arms), row=self.arms.row)
        trials: list[tuple[int, float]] = []
        self._move.hide_gradients()
        self._check_closure(start)
        while not walk.done:
            self._move.to(walk.arm)
            trials.append((walk.arm, self._judge(start)))
            self._move.check_gradients()  # now that the device has been waited for anyway
            walk = self.search.observe(walk, trials[-1][1])
        chosen = self.search.choose(walk)
        if chosen < 0:
            self._move.back()
            self._check_that_something_changed(start.to_beat, trials)
        elif chosen != trials[-1][0]:
            self._move.to(chosen)
        return walk.start, chosen if chosen >= 0 else None, trials

    def _propose(self) -> tuple[Array, BanditState]:
        """Where to start from; known already, unless this is the first step or somebody has exchanged the bandit."""
        if self._proposed is None or self._proposed[0] is not self.bandit:
            self._proposed = (self.bandit, *self.bandit.propose(self._bandit_state))
        return self._proposed[1:]

    def _judge(self, start: _Start, *, checks: bool = False) -> float:
        if start.judge_needs_grad:
            self._move.hide_gradients()  # the trial before has left some
        with self._guard.trial():
            old = start.loss if checks else None
            loss = self._agreement.mean(evaluate_trial(start.judge, with_grad=start.judge_needs_grad, old=old))
        if loss < 0 and math.isfinite(loss) and not self.reward.accepts_negative:
            refuse_negative(loss, "a trial")
        return loss

    def _check_closure(self, start: _Start) -> None:
        """Before the first trial: at the same parameters the judge must give the same loss again.

        A network that has learned nothing gives nearly the same for whatever it sees, so it is asked again later.
        """
        self._searched += 1
        if self._searched in CHECKED and "another loss" not in self._known:
            self._move.back()
            again = self._judge(start, checks=True)
            rough = start.loss.dtype in (torch.float16, torch.bfloat16)
            if not math.isclose(again, start.to_beat, rel_tol=3e-2 if rough else 1e-3, abs_tol=1e-6):
                self._known.add("another loss")
                warn_of_another_loss(start.to_beat, again, watched=start.watched)

    def _check_that_something_changed(self, to_beat: float, trials: list[tuple[int, float]]) -> None:
        """Once: weights that are others by a tenth must show in the loss."""
        if len(trials) > 1 and to_beat and self._is_new("change") and all(loss == to_beat for _, loss in trials):
            self._move.to(trials[0][0])
            moved = self._move.has_moved(0.1)
            self._move.back()
            if moved:
                warn_of_the_same_loss(len(trials))

    def _learn(self, bandit_state: BanditState, to_beat: float, trials: list[tuple[int, float]]) -> tuple[float, ...]:
        """Every arm tried is rewarded, not only the one taken."""
        self._reward_scale = self.reward.follow(self._reward_scale, to_beat)
        rewards = tuple(self.reward.grant(self._reward_scale, to_beat, loss) for _, loss in trials)
        self._bandit_state = self.bandit.observe(bandit_state, [[arm for arm, _ in trials]], [rewards])
        self._proposed = (self.bandit, *self.bandit.propose(self._bandit_state))
        return rewards

    def _record(
        self,
        begun: int,
        arm: int | None,
        start: _Start,
        trials: list[tuple[int, float]],
        rewards: tuple[float, ...] = (),
    ) -> None:
        if arm is not None:
            self._in_force = arm
        self.last_step = StepRecord(
            start=begun,
            arm=arm,
            values=self._applied(arm),
            loss_before=start.to_beat,
            loss_after=start.to_beat if arm is None else dict(trials)[arm],
            trials=tuple(trials),
            rewards=rewards,
            aux=start.aux,
        )

    def _step_without_search(self) -> None:
        self._guard.drop()
        ever = bool(self._bandit_state.step.any())
        searches = any(self._move.scale(group) for group in self.param_groups)
        if searches and self._is_new("no search any more" if ever else "no search"):
            warn_of_no_search(self._applied(self._in_force).items(), ever=ever)
        self._leftovers.begin(by_closure=False)
        self._leftovers.note(self._parameters())
        self._clip(self._parameters())
        in_force = self.arms.values(self._in_force)
        with self._move.masters.stepped(self.base), with_values(self.base, in_force, self._move.scale):
            self.base.step()
        self.last_step = StepRecord(
            start=self._in_force,
            arm=self._in_force,
            values=self._applied(self._in_force),
            loss_before=math.nan,
            loss_after=math.nan,
            trials=(),
        )

    # --- the start point ----------------------------------------------------------------------------------------------

    def _start_point(self, given: Given, trial_closure: Closure | None, loss: object) -> _Start:
        closure, parameters = given.closure, self._parameters()
        if closure is None:
            assert trial_closure is not None  # the caller has checked
            if self._loss_scale is not None:
                raise ClosureError(
                    "With loss_scale the optimizer has to run the backward pass, but step(trial_closure=..., loss=...) "
                    "brings gradients of its own; pass a closure, or leave loss_scale out."
                )
            if self._leftovers.were_added_to(parameters) and self._is_new("added gradients"):
                warn_of_added_gradients()
            self._leftovers.begin(by_closure=False)
            watched = self._guard.watched
            self._guard.start_here(parameters)
            return self._start_from_gradients(parameters, trial_closure, loss)._replace(watched=watched)
        others = self._leftovers.others(parameters)
        with self._guard.gradient_pass(parameters):
            passed = run_gradient_pass(closure, parameters, self._loss_scale, others)
            given.run_hooks()
        self._leftovers.begin(by_closure=passed.by_closure)
        if others and not passed.by_closure:
            before = not self._is_new("discarded gradients")  # the first may be left from whatever trained before
            if before and self._is_new("discarded gradients again"):
                warn_of_discarded_gradients()
        if passed.by_closure and trial_closure is None and self._is_new("own backward"):
            warn_of_own_backward()
        if trial_closure is None:
            return _Start(passed.loss, passed.loss, passed.aux, closure, passed.by_closure, *passed[3:])
        if loss is not None:
            known = scalar(loss, "step(loss=...)").item()
            return _Start(passed.loss, known, passed.aux, trial_closure, False, *passed[3:])
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None  # the trial closure may clear or overwrite what it finds
        try:
            with self._guard.trial():
                to_beat = evaluate_trial(trial_closure)
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
        return _Start(passed.loss, to_beat, passed.aux, trial_closure, False, *passed[3:])

    @staticmethod
    def _start_from_gradients(parameters: list[Tensor], trial_closure: Closure, loss: object) -> _Start:
        if loss is None:
            raise ClosureError(
                "step(trial_closure=...) needs the loss at the start point: pass loss=..., or a closure that gives it."
            )
        if all(parameter.grad is None for parameter in parameters):
            raise ClosureError(
                "step(trial_closure=...) needs a gradient, but no parameter has one in .grad: call backward() before, "
                "or pass a closure and let the optimizer do it."
            )
        given = scalar(loss, "step(loss=...)").detach()
        return _Start(given, given.item(), None, trial_closure, judge_needs_grad=False)

    def _check_start(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise LossError(
                f"The loss at the start point is {loss}, so no trial can be compared with it; the parameters were left "
                "as they are. Look at this minibatch, or at what was done to the weights before this step."
            )
        if loss < 0 and not self.reward.accepts_negative:
            refuse_negative(loss, "the start point")

    # --- scales and values --------------------------------------------------------------------------------------------

    def _applied(self, arm: int | None) -> dict[str, Value]:
        if arm is None:
            own = self.param_groups[0]
            return {name: 0.0 if name == "lr" else own[name] for name in self.arms.names}
        values = self.arms.values(arm)
        if "lr" in values:
            values["lr"] = values["lr"] * self._move.scale(self.param_groups[0])  # type: ignore[operator]  # a float
        return values

    def statistics(self) -> Statistics:
        """What the bandit knows of each arm: value, discounted count, mean reward and index. Print it."""
        state = self._bandit_state
        columns = (state.counts[0].tolist(), state.means[0].tolist(), self.bandit.index(state)[0].tolist())
        return Statistics(
            tuple(
                ArmStatistics(self.arms.values(arm), *numbers) for arm, numbers in enumerate(zip(*columns, strict=True))
            )
        )

    def __repr__(self) -> str:
        swapped = " x ".join(f"{len(axis)} {name}" for name, axis in zip(self.arms.names, self.arms.axes, strict=True))
        return f"{type(self).__name__}({type(self.base).__name__}, arms: {swapped}, {self.bandit!r}, {self.search!r})"
