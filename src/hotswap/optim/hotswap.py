"""HotSwap: Algorithm 2 around any torch optimizer, told from top to bottom.

`HotSwap.step` is the algorithm: a gradient pass, the bandit's proposal, a search that tries arms, and the reward of
every arm that was tried. Everything that makes a trial leave no trace is behind `self._trials`; see
`hotswap.optim.trial`. The optimizer's state between two steps is in `self._memory`, and `hotswap.optim.checkpoint`
saves and loads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from sys import _getframe
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.arms import MOST_ARMS, Arms, Value
from hotswap.bandits import Bandit, DiscountedUCB, FactoredBandit
from hotswap.errors import SettingError, UnsupportedError
from hotswap.optim import checkpoint
from hotswap.optim.adaptive import TopWatch, default_rates, is_adaptive
from hotswap.optim.closures import Closure, request_of
from hotswap.optim.gradients import Clipping, LossScale
from hotswap.optim.memory import MOST_MISSED, Memory, Proposal, Told, Untried
from hotswap.optim.moves import move_for
from hotswap.optim.processes import Agreement, ProcessGroup
from hotswap.optim.records import ArmStatistics, Statistics, StepRecord, applied
from hotswap.optim.setters import Setter, Setters
from hotswap.optim.surroundings import Surroundings
from hotswap.optim.trial import ClosureChecks, StartPoint, Trials
from hotswap.optim.user_warnings import warn_of_no_search, warn_of_the_top
from hotswap.optim.validation import (
    check_group,
    check_parts,
    initial_lr,
    pace_for,
    refuse_loss,
    refuse_no_search,
)
from hotswap.pacing import PaceState, When
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Backtracking, Search
from hotswap.searches.base import MOST_TRIALS, refuse_endless

__all__ = ["HotSwap"]


class Decision(NamedTuple):
    """The decision of a step when its loss is known."""

    loss: float
    """f(θ; B), as all processes see it."""
    proposal: Proposal | None
    """The arm that the search begins at, or that the step takes untried. None: the values in force apply."""
    told: Told | None
    """The outcome of the arm of the step before, where the bandit has not been told yet."""
    pace: PaceState


class HotSwap(Optimizer):
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
        loss_scale: for autocast in float16: the loss is multiplied by it before the backward pass, and the gradient
            divided after. It is halved whenever a gradient overflows, and that step is left out; doubled after 2000
            steps without.
        module: the model, whose buffers (batch norm's statistics, say) the closure changes. Without it, modules that
            hold parameters are searched for among all living objects at the first step, and once more after they were
            wrapped in others. Modules whose buffers change in the first gradient pass, like a frozen backbone's, are
            noticed either way; others have to be named. A module that holds only some of the parameters, or none, is
            looked after beside those that are found.
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

    Parameters in bfloat16 or float16 are refused: their rounding swallows most steps of a search. Keep them in float32
    and compute in `torch.autocast`.

    The `lr` of a parameter group is the user's scale, never overwritten: a group's rate is the arm's times its `lr`
    divided by the first group's `lr` at construction. So schedulers and ratios between groups work as usual.

    Setters are called by the optimizer alone: at construction, with the values of the smallest arm, and then whenever
    other values are needed than are set. The gradient pass has the values in force. A trial has those of its arm, and
    is compared with the loss at the start point under the same values, which takes one more evaluation where these are
    not in force (`last_step.start_evaluations`). The values of the arm that is taken stay; where none is, or something
    raises, the others are set again. An arm that is taken untried is rewarded only if it sets what was set before it. A
    deep copy of the optimizer calls the same functions, unless they are methods of a model that is copied with it.
    """

    base: Optimizer
    """The optimizer that turns a gradient into an update."""

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
        check_parts(self, setters)
        if not factored and smallest >= MOST_ARMS:
            raise SettingError(
                f"HotSwap(arms=...): {len(self.arms):,} arms are more than one bandit can choose from, {MOST_ARMS:,}; "
                "give fewer values, or factored=True."
            )
        if factored:
            self.bandit = FactoredBandit(self.bandit, self.arms.shape)
        self.bandit = self.bandit.knowing(self.arms)
        self._setters = Setters(setters, self.arms)
        self._trials = self._make_trials(initial_lr(base_optimizer))
        state = base_optimizer.state
        super().__init__(base_optimizer.param_groups, base_optimizer.defaults)
        self.state = state  # Optimizer.__init__ has replaced it by an empty one
        self._memory = Memory(self._fresh_bandit_state(), float(self.reward.start(1)[0]), in_force=smallest)
        if is_adaptive(base_optimizer) and self.arms.names[-1] == "lr" and self.arms.row > 1:
            self._memory.top = TopWatch()
        self._setters.to(smallest)  # when nothing can go wrong any more
        self._setters.keep()

    def _make_trials(self, initial_lr: float) -> Trials:
        agreement = Agreement(self._process_group, self.base)
        return Trials(
            self.base,
            move_for(self.base, self.arms, initial_lr, self._linear, agreement, self._setters.names),
            Surroundings(self._module),
            clipping=self._clipping,
            loss_scale=self._loss_scale,
            checks=self._checks,
            setters=self._setters,
        )

    def _fresh_bandit_state(self) -> Any:
        return self.bandit.begin(1, len(self.arms), seeds=[self._seed])

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
        request = request_of(closure, trial_closure, loss, self._memory.search_with)
        self._memory.search_with = None
        if request.closure is None and request.trial_closure is None:
            self._step_without_loss()
            return None
        self.base._opt_called = True  # type: ignore[attr-defined]  # schedulers on the base ask for it
        self._trials.begin()
        before = self._kept()
        try:
            with torch.set_grad_enabled(False), self._trials as trials:  # until an arm is taken, this leaves no trace
                start = trials.gradient_pass(request, trials=self._may_search())  # f(θ; B) and g(θ; B)
                decision = self._decide(start.seen, apart=trials.judge_apart)
                decided = self._memory.kept()
                arm = None if start.overflow else self._take(trials, decision)
            self._record(arm, start, self._learn(decision, arm))
        except BaseException:
            self._mend(before)
            if self._trials.taken:
                vars(self._memory).update(decided)
                arm = self._trials.arm
                self._record(arm, start, self._learn(decision, arm))
            raise
        return start.loss

    def _kept(self) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        """All that a step changes, beside what its trials look after."""
        scale = {} if self._loss_scale is None else dict(vars(self._loss_scale))
        return self._memory.kept(), scale, list(map(dict, self.base.param_groups))

    def _mend(self, before: tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]) -> None:
        """Bring a step to its end that was interrupted anywhere: as it was before, unless the trials have taken it."""
        with torch.set_grad_enabled(False):
            self._trials.__exit__(KeyboardInterrupt, None, None)  # once more: it may be what was interrupted
        memory, scale, groups = before
        for group, own in zip(self.base.param_groups, groups, strict=True):
            group.update({name: own[name] for name in {*self.arms.names, "lr", "weight_decay"} & own.keys()})
        if self._trials.taken:
            return
        vars(self._memory).update(memory)
        if self._loss_scale is not None:
            vars(self._loss_scale).update(scale)

    def _may_search(self) -> bool:
        """Whether the next step may have trials. With `search_when` that is known only when the step has its loss."""
        pace = self._pace
        possible = pace.every == 1 or pace.when is not None
        return self.search.tries and (possible or bool(pace.due(self._memory.pace, unsure=False)))

    def _decide(self, loss: float, *, apart: bool) -> Decision:
        """Reward the arm that the step before has taken untried, and decide where this step begins.

        Where trials are judged `apart`, by another closure, this loss matters only to arms that are not tried.
        Whether the bandit is unsure depends on all that it could know; otherwise it can wait until it has to propose.
        """
        pace, memory, unsure = self._pace, self._memory, False
        told: Told | None = None
        waiting, state = memory.untried, memory.pace
        if not apart or waiting is not None:
            self._check_loss(loss, "the start point")
        if waiting is not None:  # the loss now says what that arm is worth
            told = Told(waiting.arm, memory.reward_scale, waiting.loss, loss)
        if pace.every != 1:
            state = pace.follow(state, loss)
        if pace.when == "unsure":
            if told is not None:
                memory.catch_up(self.bandit, self.reward, told)
                told = None
            unsure = bool(self.bandit.unsure(self._propose().state)[0])
        if pace.every == 1 or pace.due(state, unsure):
            if told is not None:
                memory.catch_up(self.bandit, self.reward, told)
            return Decision(loss, self._propose(), None, state)
        if apart:
            self._check_loss(loss, "the start point")
        return Decision(loss, None, told, state)

    def _propose(self) -> Proposal:
        """The arm to start from; known already, unless this is the first step or the bandit was exchanged."""
        memory = self._memory
        if memory.missed:
            memory.catch_up(self.bandit, self.reward)
        known = memory.proposal
        if known is None or known.bandit is not self.bandit:
            arm, state = self.bandit.propose(memory.bandit)
            known = memory.proposal = Proposal(self.bandit, arm.item(), state)
        return known

    def _take(self, trials: Trials, decision: Decision) -> int | None:
        """Take the arm that a search chooses, or one without trying it; None for no step."""
        first = self._memory.in_force if decision.proposal is None else decision.proposal.arm
        if decision.proposal is not None and self.search.tries:
            return self._search_and_take(trials, trials.loss_to_beat(first), first)
        if not trials.can_move:  # the base's state advances all the same
            trials.take_untried(self._memory.in_force)
            return None
        trials.take_untried(first)
        return first

    def _search_and_take(self, trials: Trials, loss_before: float, proposed: int) -> int | None:
        """Walk from the proposed arm to others, and take the one that the search chooses; None for no step."""
        self._check_loss(loss_before, "the start point")
        search, arms = self.search, len(self.arms)
        walk = search.begin(proposed, loss_before, arms=arms, row=self.arms.row)
        trials.save()  # θ and g(θ; B)
        if not trials.can_move:  # a scheduler is at zero, so there is nothing to search for
            trials.take(None)
            return None
        trials.check_closure()
        while not walk.done:
            if len(trials.made) >= MOST_TRIALS * arms:
                refuse_endless(search, len(trials.made))
            loss = trials.loss_at(walk.arm)  # f(θ − α g; B)
            if loss < 0:
                self._check_loss(loss, "a trial")
            if search.needs_slope:
                walk = search.observe(walk, loss, trials.expected_decrease())
            else:
                walk = search.observe(walk, loss)
        chosen = search.choose(walk)
        arm = chosen if chosen >= 0 else None
        trials.take(arm)  # θ ← θ − α g, and the base's state advances
        return arm

    def _check_loss(self, loss: float, where: str) -> None:
        """Raise for a start point that no trial can be compared with, and for a loss that the reward cannot judge."""
        if 0 <= loss < math.inf:
            return
        negative = loss < 0 and math.isfinite(loss) and not self.reward.accepts_negative
        if negative or (where == "the start point" and not math.isfinite(loss)):
            refuse_loss(loss, where)

    def _learn(self, decision: Decision, arm: int | None) -> tuple[float, ...]:
        """Every arm that was tried is rewarded, not only the one taken. An arm that was taken untried has to wait."""
        memory, made = self._memory, self._trials.made
        if not made and arm is None:  # the step was left out
            return ()
        before = decision.loss if self._trials.to_beat is None else self._trials.to_beat
        scale = memory.reward_scale = self.reward.follow(memory.reward_scale, before)
        tried = [one for one, _ in made]
        rewards = tuple([self.reward.grant(scale, before, after) for _, after in made])
        self._pass_time(decision)
        if made:
            memory.bandit = self.bandit.observe(memory.bandit, [tried], [rewards])
        memory.untried = None
        if arm is not None and arm not in tried:
            if self._setters.same(arm, memory.in_force):
                memory.untried = Untried(arm, decision.loss)
        elif self._pace.every == 1:
            self._propose()
        return rewards

    def _pass_time(self, decision: Decision) -> None:
        """Record that a step is over. A bandit that made no proposal for it hears of it later."""
        memory, pace = self._memory, self._pace
        if memory.proposal is not None:
            memory.bandit = memory.proposal.state
        else:
            memory.missed.append(decision.told)
            if len(memory.missed) >= MOST_MISSED:
                memory.catch_up(self.bandit, self.reward)
        memory.searched, memory.proposal = True, None
        if pace.every != 1:
            memory.pace = pace.after(decision.pace, decision.proposal is not None)

    def _record(self, arm: int | None, start: StartPoint, rewards: tuple[float, ...]) -> None:
        trials, memory, made = self._trials, self._memory, self._trials.made
        if memory.top is not None and memory.top.sees(start.seen, top=arm is not None and arm % self.arms.row == 0):
            memory.top = None  # the largest rate is taken all the time and does not help: a word, once
            warn_of_the_top(self._applied(0).items())
        loss_before = start.seen if trials.to_beat is None else trials.to_beat
        step = memory.last_step = {
            "arm": arm,
            "loss_before": loss_before,
            "loss_after": loss_before if arm is None else dict(made).get(arm, math.nan),
            "trials": tuple(made),
            "rewards": rewards,
            "aux": start.aux,
            "start_evaluations": trials.start_evaluations,
        }
        if arm is None:
            step |= {"start": memory.in_force, "values": self._applied(None)}
        else:
            memory.in_force = arm
            step |= {"start": arm, "scale": trials.move.scale(self.base.param_groups[0])}
        if made:
            step["start"] = made[0][0]

    def _applied(self, arm: int | None) -> dict[str, Value]:
        """The values of an arm in the first parameter group; those that are there where none was taken."""
        if arm is not None:
            return applied(self.arms, arm, self._trials.move.scale(self.base.param_groups[0]))
        own = self.base.param_groups[0] | self._setters.now
        return {name: 0.0 if name == "lr" else own[name] for name in self.arms.names}

    # --- steps that a framework makes, or that are made in parts ------------------------------------------------------

    @torch.no_grad()
    def _step_without_loss(self) -> None:
        memory, trials = self._memory, self._trials
        arm = memory.in_force
        values = self._applied(arm)
        if trials.can_move and not memory.searched and trials.any_gradient():
            refuse_no_search()
        if trials.can_move and memory.searched and self._checks.first_time("no search"):
            warn_of_no_search(values.items())
        trials.begin()
        before = self._kept()
        try:
            trials.take_untried(arm)
        except BaseException:
            self._mend(before)
            raise
        if trials.can_move:
            memory.untried = None  # the next loss is that of two steps
        losses = {"loss_before": math.nan, "loss_after": math.nan}
        memory.last_step = {"start": arm, "arm": arm, "values": values, "trials": (), **losses}

    def gradient_pass(self) -> AbstractContextManager[None]:
        """Record a gradient pass of a loop that calls `backward()` itself, whose random numbers trials share.

            optimizer.zero_grad()
            with optimizer.gradient_pass():
                loss = loss_fn(model(x), y)
                loss.backward()
            optimizer.step(trial_closure=lambda: loss_fn(model(x), y), loss=loss)

        Buffers advance once, too. Where gradients of several minibatches add up, open it for each of them.
        """
        return self._trials.recording(trials=self._may_search())

    def search_with(self, trial_closure: Closure, loss: Tensor | float) -> None:
        """Let the next `step()` search as `step(trial_closure=..., loss=...)` would, where a framework calls it."""
        self._memory.search_with = trial_closure, loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and forget a gradient pass or a search that was to use them."""
        super().zero_grad(set_to_none)
        if not self._trials.is_open:  # a closure may call it, too
            self._trials.surroundings.drop()
            self._memory.search_with = None

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """torch's GradScaler asks this of an optimizer before it calls its step, and is refused; others may ask."""
        import_module("hotswap.integrations.grad_scaler").refuse(_getframe(1))
        return False

    # --- what it tells about itself -----------------------------------------------------------------------------------

    @property
    def last_step(self) -> StepRecord | None:
        """The record of the latest step."""
        step = self._memory.last_step
        if isinstance(step, dict):
            if "scale" in step:
                step["values"] = applied(self.arms, step["arm"], step.pop("scale"))
            step = self._memory.last_step = StepRecord(**step)
        return step

    @property
    def check_closure(self) -> bool:
        """Whether the closure is checked, in some searches, for giving the same loss twice."""
        return self._checks.enabled

    @check_closure.setter
    def check_closure(self, check: bool) -> None:
        self._checks.enabled = check

    def statistics(self) -> Statistics:
        """Value, count, mean reward and index of each arm, as the bandit knows them. Print it."""
        self._memory.catch_up(self.bandit, self.reward)
        bandit, state = self.bandit, self._memory.bandit
        columns = (bandit.counts(state), bandit.means(state), bandit.index(state))
        rows = zip(*(column[0].tolist() for column in columns), strict=True)
        return Statistics(ArmStatistics(self.arms.values(arm), *numbers) for arm, numbers in enumerate(rows))

    def __repr__(self) -> str:
        swapped = " x ".join(f"{len(axis)} {name}" for name, axis in zip(self.arms.names, self.arms.axes, strict=True))
        return f"{type(self).__name__}({type(self.base).__name__}, arms: {swapped}, {self.bandit!r}, {self.search!r})"

    # --- what torch expects of an optimizer: parameter groups and state are the base's --------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base optimizer's parameter groups."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.base.param_groups = groups

    @property
    def state(self) -> Any:
        """The base optimizer's state."""
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:
        self.base.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer."""
        check_group(param_group, type(self).__name__)
        self.base.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The base's state, and all that is remembered beside it; loading it resumes exactly."""
        for pre_hook in self._optimizer_state_dict_pre_hooks.values():
            pre_hook(self)
        packed = checkpoint.pack(self)
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            packed = post_hook(self, packed) or packed
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from `state_dict()`; a state of other settings is refused and changes nothing."""
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        checkpoint.load(self, state_dict)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        self._memory.catch_up(self.bandit, self.reward)
        kept = ("base", "arms", "bandit", "search", "reward", "_linear", "_seed", "_module", "_process_group")
        parts = ("_clipping", "_loss_scale", "_checks", "_pace", "_setters")
        return {name: self.__dict__[name] for name in (*kept, *parts)} | {
            "_memory": replace(self._memory, proposal=None, search_with=None),
            "_initial_lr": self._trials.move.initial_lr,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = dict(state)
        initial_lr = own.pop("_initial_lr")
        self.__dict__.update(own)
        super().__setstate__({"defaults": self.base.defaults})  # groups and state are the base's
        self._trials = self._make_trials(initial_lr)
