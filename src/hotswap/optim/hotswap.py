"""HotSwap: Algorithm 2 around any torch optimizer.

`HotSwap.step` is the algorithm. What makes a trial leave no trace is behind `self._probe`; see `hotswap.optim.probing`.
What torch expects of an optimizer is in `hotswap.optim.wrapping`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.arms import Arms, Value
from hotswap.bandits import Bandit, DiscountedUCB, FactoredBandit
from hotswap.errors import SettingError, UnsupportedError
from hotswap.guards import Guard
from hotswap.optim.adapters import Closure
from hotswap.optim.adaptive import TopWatch, default_rates, is_adaptive
from hotswap.optim.deciding import Deciding, Decision
from hotswap.optim.guarding import Guarding
from hotswap.optim.probing import ClosureChecks, Probe, StartPoint
from hotswap.optim.probing.agreement import ProcessGroup
from hotswap.optim.probing.closures import Request, request_of
from hotswap.optim.probing.grad_mode import grad_mode
from hotswap.optim.probing.gradients import Clipping, LossScale
from hotswap.optim.records import ArmStatistics, Brief, Statistics, StepRecord
from hotswap.optim.setters import Setter, Setters
from hotswap.optim.untried import Untried, pace_for
from hotswap.optim.user_warnings import warn_of_no_search, warn_of_the_top
from hotswap.optim.validation import check_parts, initial_lr, refuse_no_search
from hotswap.optim.wrapping import Memory
from hotswap.pacing import When
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Backtracking, Search
from hotswap.searches.base import MOST_TRIALS, refuse_endless

__all__ = ["HotSwap"]


class HotSwap(Deciding):
    """Swap hyperparameters of `base_optimizer` while it trains, guided by a bandit and protected by a search.

        optimizer = HotSwap(torch.optim.Adam(model.parameters()), module=model)
        for x, y in loader:
            loss = optimizer.step(lambda: loss_fn(model(x), y))

    Args:
        base_optimizer: turns a gradient into an update; its state advances exactly once per step.
        arms: what may be swapped, by hyperparameter name; the default is `{"lr": log_grid()}`, and around Adam and its
            kin, whose steps are as long as their rate, `{"lr": log_grid(1e-2, 1e-6, 17)}`. Arms over `lr` alone cost
            one pass over the parameters per trial if the base's step is linear in its rate, as those of SGD,
            Adam(W), RMSprop, AdaDelta and their kin are; others restore and repeat the base's step.
        bandit: proposes the arm a step starts from; the default is `DiscountedUCB()`.
        search: walks from there to other arms; the default is `Backtracking()`.
        reward: what a trial's loss is worth; the default is `LogReduction()`, for losses that are never negative.
        linear: whether the base's step is linear in its rate; `None` knows it for torch's own optimizers.
        clip_norm, clip_value: shorten the gradient, once, before the search walks along it.
        loss_scale: for float16: the loss is multiplied by it before the backward pass, and the gradient divided after.
            It is halved whenever a gradient overflows, and that step is left out; doubled after 2000 steps without.
        module: the model, whose buffers (batch norm's statistics, say) the closure changes. Without it, modules that
            hold parameters are searched for among all living objects, with all that is in or around them. Others
            whose buffers change in the first gradient pass, like a frozen backbone's, are noticed either way; what
            comes into play later has to be named. A module that holds only some of the parameters, or none, is looked
            after beside those that are found.
        process_group: of the processes that train together: each loss is averaged over them, so that all take the same
            step. By default torch's default group, where there is one; False for none.
        check_closure: whether the closure is evaluated once more in searches 1, 10 and 100, to warn if it gives another
            loss at the same parameters.
        seed: for bandits that draw random numbers.
        search_every: search in every n-th step, and between them apply what the latest search chose. Such a step costs
            little more than one of the base, and its arm is rewarded by the loss of the step after it.
        search_when: search when there is a reason to: `"unsure"`, while the bandit's two best arms may be either the
            better one; `"risen"`, when the running mean of the loss is above what it was at the latest search. With
            `search_every`, either of them will do; the first step searches in any case. With neither, all steps do.
        setters: a function for each name in `arms` that is not the base's, `{"dropout": function}`: it is called with a
            value to set it. See below.
        factored: one bandit for each hyperparameter, instead of one for all combinations: with many of them, each is
            tried too seldom. A search still walks within one combination.
        guard: goes back to a snapshot when the loss has risen for too long, or is not a number, `hotswap.Guard()`. For
            runs without a search, which alone refuses a step that goes wrong; it keeps another copy of parameters and
            of the base's state.

    The `lr` of a parameter group is the user's scale, never overwritten: a group's rate is the arm's times its `lr`
    divided by the first group's `lr` at construction. So schedulers and ratios between groups work as usual.

    Setters are called by the optimizer alone: at construction, with the values of the smallest arm, and then whenever
    other values are needed than are set. The gradient pass has the values in force. A trial has those of its arm, and
    is compared with the loss at the start point under the same values, which takes one more evaluation where these are
    not in force (`last_step.start_evaluations`). The values of the arm that is taken stay; where none is, or something
    raises, the others are set again. An arm that is taken untried is rewarded only if it sets what was set before it. A
    deep copy of the optimizer calls the same functions, unless they are methods of a model that is copied with it.
    """

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
        process_group: ProcessGroup = None,
        check_closure: bool = True,
        seed: int = 0,
        search_every: int | None = None,
        search_when: When | None = None,
        setters: Mapping[str, Setter] | None = None,
        factored: bool = False,
        guard: Guard | None = None,
    ) -> None:
        if not isinstance(base_optimizer, Optimizer):
            raise SettingError(
                f"HotSwap: the base is of type {type(base_optimizer).__name__}, not a torch.optim.Optimizer; "
                "for plain parameters use HotSwapSGD."
            )
        if isinstance(base_optimizer, HotSwap):
            raise UnsupportedError("HotSwap cannot wrap another HotSwap; name all arms in one of them.")
        if arms is not None and not isinstance(arms, Mapping):
            raise SettingError("HotSwap(arms=...): name what is swapped, as in arms={'lr': hotswap.log_grid()}.")
        self.base = base_optimizer
        self.arms = Arms.of({"lr": default_rates(base_optimizer)} if arms is None else arms)
        self.bandit = DiscountedUCB() if bandit is None else bandit
        self.search = Backtracking() if search is None else search
        self.reward = LogReduction() if reward is None else reward
        self._linear, self._seed, self._module, self._process_group = linear, seed, module, process_group
        self._clipping = Clipping(clip_norm, clip_value)
        self._loss_scale = None if loss_scale is None else LossScale(loss_scale)
        self._checks = ClosureChecks(check_closure)
        self._pace = pace_for(type(self).__name__, search_every, search_when)
        setters, smallest = {} if setters is None else setters, len(self.arms) - 1
        check_parts(self, setters, guard)
        self._guarding = None if guard is None else Guarding(guard)
        if factored:
            self.bandit = FactoredBandit(self.bandit, self.arms.shape)
        self.bandit = self.bandit.knowing(self.arms)
        self._setters = Setters(setters, self.arms)
        self._probe = self._make_probe(initial_lr(base_optimizer))
        state = base_optimizer.state
        super().__init__(base_optimizer.param_groups, base_optimizer.defaults)
        self.state = state  # Optimizer.__init__ has replaced it by an empty one
        self._memory = Memory(self._fresh_bandit_state(), float(self.reward.start(1)[0]), in_force=smallest)
        if is_adaptive(base_optimizer) and self.arms.names[-1] == "lr" and self.arms.row > 1:
            self._memory.top = TopWatch()
        self._setters.to(smallest)  # when nothing can go wrong any more
        self._setters.keep()

    # --- Algorithm 2 --------------------------------------------------------------------------------------------------

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
        that the latest search chose. Before the first search that is an error, unless there are no gradients or all
        are 0: libraries for checkpoints take such a step to make state that they can load into.
        """
        request = self._request(closure, trial_closure, loss)
        if request.empty:
            self._step_without_loss()
            return None
        self.base._opt_called = True  # type: ignore[attr-defined]  # schedulers on the base ask for it
        with grad_mode(False), self._probe as probe:  # until an arm is taken, nothing in here leaves a trace
            start = probe.gradient_pass(request, trials=self._may_search(), survey=self._is_new_to_guard)
            verdict = self._judge(start.seen)  # f(θ; B); there is g(θ; B), too
            if not verdict.back:
                decision = self._decide(start.seen, apart=probe.judges_apart)
                arm = None if start.overflow else self._take(probe, decision)
        if verdict.back:
            self._go_back(start, verdict.earned)
        else:
            rewards = self._learn(decision, arm)
            self._record(arm, start, rewards)
            self._watch_the_top(arm, start.seen)
            if verdict.keep:
                self._watch_the_base()
        return start.loss

    def _take(self, probe: Probe, decision: Decision) -> int | None:
        """Take the arm that a search chooses, or one without trying it; None for no step."""
        first = self._allowed(self._memory.in_force if decision.proposal is None else decision.proposal.arm)
        if decision.proposal is not None and self.search.tries:
            return self._search_and_take(probe, probe.loss_to_beat(first), first)
        if not probe.can_move:  # the base's state advances all the same
            probe.take_untried(self._memory.in_force)
            return None
        probe.take_untried(first)
        return first

    def _search_and_take(self, probe: Probe, loss_before: float, proposed: int) -> int | None:
        """Walk from the proposed arm to others, and take the one that the search chooses; None for no step."""
        self._check_loss(loss_before, "the start point")
        arms = len(self.arms)
        walk = self.search.begin(proposed, loss_before, arms=arms, row=self.arms.row)
        probe.save()  # θ and g(θ; B)
        if not probe.can_move:  # a scheduler is at zero, so there is nothing to search for
            probe.take(None)
            return None
        probe.check_closure()
        while not walk.done:
            if len(probe.trials) >= MOST_TRIALS * arms:
                refuse_endless(self.search, len(probe.trials))
            loss = probe.loss_at(walk.arm)  # f(θ − α g; B)
            if loss < 0:
                self._check_loss(loss, "a trial")
            if self.search.needs_slope:
                walk = self.search.observe(walk, loss, probe.expected_decrease())
            else:
                walk = self.search.observe(walk, loss)
        chosen = self.search.choose(walk)
        arm = self._allowed(chosen) if chosen >= 0 else None
        probe.take(arm)  # θ ← θ − α g, and the base's state advances
        return arm

    def _learn(self, decision: Decision, arm: int | None) -> tuple[float, ...]:
        """Every arm that was tried is rewarded, not only the one taken. An arm that was taken untried has to wait."""
        memory, trials = self._memory, self._probe.trials
        if not trials and arm is None:  # the step was left out
            return ()
        before = decision.loss if self._probe.to_beat is None else self._probe.to_beat
        memory.reward_scale = self.reward.follow(memory.reward_scale, before)
        rewards: tuple[float, ...] = ()
        if trials:
            rewards = tuple(self.reward.grant(memory.reward_scale, before, after) for _, after in trials)
        self._pass_time(decision)
        if trials:
            memory.bandit = self.bandit.observe(memory.bandit, [[tried for tried, _ in trials]], [rewards])
        memory.untried = None
        if arm is not None and not (trials and arm in dict(trials)):
            if self._setters.same(arm, memory.in_force):
                memory.untried = Untried(arm, decision.loss)
        elif self._pace.always:
            self._propose()
        return rewards

    def _record(self, arm: int | None, start: StartPoint, rewards: tuple[float, ...]) -> None:
        probe, memory, trials = self._probe, self._memory, self._probe.trials
        first = memory.in_force if arm is None else arm
        if arm is not None:
            memory.in_force = arm
            if probe.to_beat is None:  # there were no trials
                scale = probe.move.scale(self.base.param_groups[0])
                memory.last_step = Brief(arm, scale, start.seen, start.aux)
                return
        loss_before = start.seen if probe.to_beat is None else probe.to_beat
        memory.last_step = StepRecord(
            start=trials[0][0] if trials else first,
            arm=arm,
            values=self._applied(arm),
            loss_before=loss_before,
            loss_after=loss_before if arm is None else dict(trials).get(arm, math.nan),
            trials=tuple(trials),
            rewards=rewards,
            aux=start.aux,
            start_evaluations=probe.start_evaluations,
        )

    def _watch_the_top(self, arm: int | None, loss: float) -> None:
        """Around Adam and its kin: a word, once, where the largest rate is taken all the time and does not help."""
        watch = self._memory.top
        if watch is not None and watch.sees(loss, top=arm is not None and arm % self.arms.row == 0):
            self._memory.top = None
            warn_of_the_top(self._applied(0).items())

    # --- steps that a framework makes, or that are made in parts ------------------------------------------------------

    def _request(self, closure: object, trial_closure: object, loss: Tensor | float | None) -> Request:
        """The arguments of `step`; where there are none, those that `search_with` was given before."""
        request = request_of(closure, trial_closure, loss)
        if request.closure is None and request.after_backward is not None:
            with torch.enable_grad():
                request.after_backward()
        known = self._memory.search_with
        if known is not None:
            self._memory.search_with = None
            if request.empty:
                request = request._replace(trial_closure=known[0], loss=known[1])
        return request

    @torch.no_grad()
    def _step_without_loss(self) -> None:
        memory = self._memory
        arm = memory.in_force = self._allowed(memory.in_force)
        values = self._applied(arm)
        if self._probe.can_move and not memory.searched and self._probe.any_gradient():
            refuse_no_search()
        if self._probe.can_move and memory.searched and self._checks.first_time("no search"):
            warn_of_no_search(values.items())
        self._probe.step_without_loss(arm)
        if self._probe.can_move:
            memory.untried = None  # the next loss is that of two steps
        memory.last_step = StepRecord(
            start=arm, arm=arm, values=values, loss_before=math.nan, loss_after=math.nan, trials=()
        )

    def gradient_pass(self) -> AbstractContextManager[None]:
        """For loops that call `backward()` themselves: a `step(trial_closure=...)` shares its random numbers.

            optimizer.zero_grad()
            with optimizer.gradient_pass():
                loss = loss_fn(model(x), y)
                loss.backward()
            optimizer.step(trial_closure=lambda: loss_fn(model(x), y), loss=loss)

        Buffers advance once, too. Where gradients of several minibatches add up, open it for each of them.
        """
        return self._probe.recording(trials=self._may_search())

    def search_with(self, trial_closure: Closure, loss: Tensor | float) -> None:
        """Let the next `step()` search as `step(trial_closure=..., loss=...)` would, where a framework calls it."""
        self._memory.search_with = trial_closure, loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and forget a gradient pass or a search that was to use them."""
        super().zero_grad(set_to_none)
        if not self._probe.is_open:  # a closure may call it, too
            self._probe.drop_recording()
            self._memory.search_with = None

    # --- what it tells about itself -----------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """What the bandit knows of each arm: value, count, mean reward and index. Print it."""
        self._memory.catch_up(self.bandit, self.reward)
        bandit, state = self.bandit, self._memory.bandit
        columns = (bandit.counts(state), bandit.means(state), bandit.index(state))
        rows = zip(*(column[0].tolist() for column in columns), strict=True)
        return Statistics(tuple(ArmStatistics(self.arms.values(arm), *numbers) for arm, numbers in enumerate(rows)))

    def __repr__(self) -> str:
        swapped = " x ".join(f"{len(axis)} {name}" for name, axis in zip(self.arms.names, self.arms.axes, strict=True))
        return f"{type(self).__name__}({type(self.base).__name__}, arms: {swapped}, {self.bandit!r}, {self.search!r})"
