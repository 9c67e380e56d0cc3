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

from hotswap.arms import Arms, Value, log_grid
from hotswap.bandits import Bandit, DiscountedUCB
from hotswap.errors import SettingError, UnsupportedError
from hotswap.optim.adapters import Closure
from hotswap.optim.probing import ClosureChecks, Probe, StartPoint
from hotswap.optim.probing.agreement import ProcessGroup
from hotswap.optim.probing.closures import Request, request_of
from hotswap.optim.probing.gradients import Clipping, LossScale
from hotswap.optim.records import ArmStatistics, Statistics, StepRecord
from hotswap.optim.user_warnings import warn_of_no_search
from hotswap.optim.validation import check_parts, initial_lr, refuse_loss
from hotswap.optim.wrapping import Memory, Proposal, WrappingOptimizer
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Backtracking, Search
from hotswap.searches.base import MOST_TRIALS, refuse_endless

__all__ = ["HotSwap"]


class HotSwap(WrappingOptimizer):
    """Swap hyperparameters of `base_optimizer` while it trains, guided by a bandit and protected by a search.

        optimizer = HotSwap(torch.optim.Adam(model.parameters()), {"lr": log_grid(1e-1, 1e-6, 21)}, module=model)
        for x, y in loader:
            loss = optimizer.step(lambda: loss_fn(model(x), y))

    Args:
        base_optimizer: turns a gradient into an update; its state advances exactly once per step.
        arms: what may be swapped, by hyperparameter name; the default is `{"lr": log_grid()}`. Arms over `lr` alone
            cost one pass over the parameters per trial if the base's step is linear in its rate, as those of SGD,
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

    The `lr` of a parameter group is the user's scale, never overwritten: a group's rate is the arm's times its `lr`
    divided by the first group's `lr` at construction. So schedulers and ratios between groups work as usual.
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
        self.arms = Arms.of({"lr": log_grid()} if arms is None else arms)
        self.bandit = DiscountedUCB() if bandit is None else bandit
        self.search = Backtracking() if search is None else search
        self.reward = LogReduction() if reward is None else reward
        self._linear, self._seed, self._module, self._process_group = linear, seed, module, process_group
        self._clipping = Clipping(clip_norm, clip_value)
        self._loss_scale = None if loss_scale is None else LossScale(loss_scale)
        self._checks = ClosureChecks(check_closure)
        check_parts(self)
        self._probe = self._make_probe(initial_lr(base_optimizer))
        state = base_optimizer.state
        super().__init__(base_optimizer.param_groups, base_optimizer.defaults)
        self.state = state  # Optimizer.__init__ has replaced it by an empty one
        smallest = len(self.arms) - 1
        self._memory = Memory(self._fresh_bandit_state(), float(self.reward.start(1)[0]), in_force=smallest)

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
        request = self._request(closure, trial_closure, loss)
        if request.empty:
            self._step_without_search()
            return None
        self.base._opt_called = True  # type: ignore[attr-defined]  # schedulers on the base ask for it
        proposal = self._propose()
        with self._probe as probe:  # until an arm is taken, nothing in here leaves a trace
            start = probe.gradient_pass(request)  # f(θ; B) and g(θ; B)
            self._check_loss(start.to_beat, "the start point")
            arm = None if start.overflow else self._search_and_take(probe, start.to_beat, proposal.arm)
        rewards = self._learn(proposal, start.to_beat, probe.trials)
        self._record(arm, start, probe.trials, rewards)
        return start.loss

    def _propose(self) -> Proposal:
        """Where to start from; known already, unless this is the first step or the bandit was exchanged."""
        known = self._memory.proposal
        if known is None or known.bandit is not self.bandit:
            arm, state = self.bandit.propose(self._memory.bandit)
            known = self._memory.proposal = Proposal(self.bandit, arm.item(), state)
        return known

    def _search_and_take(self, probe: Probe, loss_before: float, proposed: int) -> int | None:
        """Walk from the proposed arm to others, and take the one that the search chooses; None for no step."""
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
        arm = chosen if chosen >= 0 else None
        probe.take(arm)  # θ ← θ − α g, and the base's state advances
        return arm

    def _check_loss(self, loss: float, where: str) -> None:
        """Raise for a start point that no trial can be compared with, and for a loss that the reward cannot judge."""
        negative = loss < 0 and math.isfinite(loss) and not self.reward.accepts_negative
        if negative or (where == "the start point" and not math.isfinite(loss)):
            refuse_loss(loss, where)

    def _learn(self, proposal: Proposal, loss_before: float, trials: list[tuple[int, float]]) -> tuple[float, ...]:
        """Every arm that was tried is rewarded, not only the one taken."""
        if not trials:
            return ()
        memory = self._memory
        memory.reward_scale = self.reward.follow(memory.reward_scale, loss_before)
        rewards = tuple(self.reward.grant(memory.reward_scale, loss_before, loss) for _, loss in trials)
        memory.bandit = self.bandit.observe(proposal.state, [[arm for arm, _ in trials]], [rewards])
        memory.searched, memory.proposal = True, None
        self._propose()
        return rewards

    def _record(
        self, arm: int | None, start: StartPoint, trials: list[tuple[int, float]], rewards: tuple[float, ...]
    ) -> None:
        if arm is not None:
            self._memory.in_force = arm
        self._memory.last_step = StepRecord(
            start=trials[0][0] if trials else 0,
            arm=arm,
            values=self._applied(arm),
            loss_before=start.to_beat,
            loss_after=start.to_beat if arm is None else dict(trials).get(arm, math.nan),
            trials=tuple(trials),
            rewards=rewards,
            aux=start.aux,
        )

    def _applied(self, arm: int | None) -> dict[str, Value]:
        if arm is not None:
            return self._probe.move.values_of(arm)
        own = self.base.param_groups[0]
        return {name: 0.0 if name == "lr" else own[name] for name in self.arms.names}

    # --- steps that a framework makes, or that are made in parts ------------------------------------------------------

    def _request(self, closure: object, trial_closure: object, loss: Tensor | float | None) -> Request:
        """The arguments of `step`; where there are none, those that `search_with` was given before."""
        request = request_of(closure, trial_closure, loss)
        if request.closure is None and request.after_backward is not None:
            with torch.enable_grad():
                request.after_backward()
        known, self._memory.search_with = self._memory.search_with, None
        if request.empty and known is not None:
            request = request._replace(trial_closure=known[0], loss=known[1])
        return request

    def _step_without_search(self) -> None:
        memory = self._memory
        values = self._applied(memory.in_force)
        warning = "no search any more" if memory.searched else "no search"
        if self._probe.can_move and self._checks.first_time(warning):
            warn_of_no_search(values.items(), ever=memory.searched)
        self._probe.step_without_trials(memory.in_force)
        memory.last_step = StepRecord(
            start=memory.in_force,
            arm=memory.in_force,
            values=values,
            loss_before=math.nan,
            loss_after=math.nan,
            trials=(),
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
        return self._probe.recording()

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
        bandit, state = self.bandit, self._memory.bandit
        columns = (bandit.counts(state), bandit.means(state), bandit.index(state))
        rows = zip(*(column[0].tolist() for column in columns), strict=True)
        return Statistics(tuple(ArmStatistics(self.arms.values(arm), *numbers) for arm, numbers in enumerate(rows)))

    def __repr__(self) -> str:
        swapped = " x ".join(f"{len(axis)} {name}" for name, axis in zip(self.arms.names, self.arms.axes, strict=True))
        return f"{type(self).__name__}({type(self.base).__name__}, arms: {swapped}, {self.bandit!r}, {self.search!r})"
