"""`Race`: optimizers take turns in one training run, and the best one goes on."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import update_bn
from torch.utils.hooks import RemovableHandle

from hotswap.errors import ClosureError, LossError, SettingError, UnsupportedError
from hotswap.race import checkpoint
from hotswap.race.contest import Contest
from hotswap.race.distributed import entries, is_distributed, rebuilt
from hotswap.race.following import base_of, momentum_of, refuse_momentum, scale_of, warn_of_rate
from hotswap.race.interrupts import Uninterrupted
from hotswap.race.judging import Plan, plan
from hotswap.race.lane import Lane, Seat, scheduled
from hotswap.race.losses import checked, copied
from hotswap.race.owners import refuse_another_race
from hotswap.race.processes import Processes
from hotswap.race.standings import Standings
from hotswap.race.validation import (
    KEY,
    OWN_SCHEDULE,
    check_added,
    check_settings,
    check_total,
    further_of,
    gone_name,
    gone_setting,
    lanes_of,
    opened,
    weights_of,
)

__all__ = ["Race"]

Closure = Callable[[], Any]


class Race(Optimizer):
    """Let several optimizers take turns in one training run, drop the worse ones early, and go on with the best.

        optimizer = hotswap.Race(model, total_steps=epochs * len(loader))
        for x, y in loader:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
        print(optimizer.standings())

    A lane is an optimizer with weights, buffers and state of its own. One lane has the model at a time; the others wait
    in the host's memory. Lanes are compared by their mean training loss. After the race a step is the winner's step.

    Args:
        model: the network to train.
        optimizers: None for the default lanes, see `lanes`; an optimizer of yours, which races beside the default lanes
            and stays until the last round; or a list of optimizers, which race alone.
        total_steps: how many steps the run has. Without it rates stay as they are until `finish` is called.
        judge: a function of the model that returns how good it is, the lower the better, such as a validation loss. It
            is called for each lane at the end of each round, where a training loss means nothing.
        schedule: "linear" for the race's own, a warm-up and a linear decay to zero; None to leave rates alone; or a
            function that makes a torch scheduler for an optimizer.
        share: how much of all steps the losing lanes may take together.
        average: whether an average of the weights is kept, one copy of them, for `eval`.
        also: further tensors that belong to a lane, such as the weights of a teacher.
        process_group: of the processes that train the model together; torch's default group without it.
        verbose: whether a line is printed when a lane is dropped and when the race is over.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        *,
        total_steps: int | None = None,
        judge: Callable[[nn.Module], float] | None = None,
        schedule: str | Callable[[Optimizer], LRScheduler] | None = OWN_SCHEDULE,
        share: float = 0.15,
        average: bool = True,
        also: Iterable[Tensor] = (),
        process_group: Any = None,
        verbose: bool = False,
        **gone: Any,
    ) -> None:
        if gone:
            raise SettingError(gone_setting(next(iter(gone))))
        check_total(total_steps)
        check_settings(judge=judge, schedule=schedule, share=share)
        racing = lanes_of(model, optimizers)
        weights, further = weights_of(model, racing), further_of(also)
        groups = [
            {**{key: value for key, value in group.items() if key != "initial_lr"}, "params": list(group["params"])}
            for group in racing[0].optimizer.param_groups
        ]
        self.share, self._judged, self._chosen = share, judge is not None, optimizers is not None
        if callable(schedule):
            for lane in racing:
                scheduled(lane, schedule)
        self._contest = Contest(
            Seat(model, weights, further),
            racing,
            self._plan(racing, total_steps),
            total_steps,
            judge=judge,
            scheduled=schedule == OWN_SCHEDULE,
            average=average,
            processes=Processes(process_group),
            verbose=verbose,
        )
        refuse_another_race(self._contest)
        super().__init__(groups, {"lr": racing[0].rates[0]})
        self._remember_shown()
        self._remember_buffers()

    def _plan(self, racing: Sequence[Lane], total: int | None) -> Plan:
        return plan([lane.group for lane in racing], total, self.share, judged=self._judged)

    @property
    def total_steps(self) -> int | None:
        """How many steps the run has; it can be set until the first step."""
        return self._contest.total

    @total_steps.setter
    def total_steps(self, total: int | None) -> None:
        check_total(total)
        if self._contest.begun:
            raise SettingError("total_steps can be set until the first step; call finish(steps) to end a run earlier.")
        self._contest.prepare(self._plan(self._contest.lanes, total), total)

    @property
    def state(self) -> Any:
        """The state of the optimizer that has the model.

        It is never empty: `torch.distributed.checkpoint` would take a step to fill it.
        """
        state = self._contest.here.optimizer.state
        return state or defaultdict(dict, {self._contest.seat.weights[0]: {}})

    @state.setter
    def state(self, _: Any) -> None:  # torch's constructor sets an empty one
        pass

    @property
    def leader(self) -> Lane:
        """The lane that was best when lanes were last compared; before that, the first one."""
        return self._contest.leader

    @property
    def winner(self) -> Lane | None:
        """The lane that has won; None while the race goes on."""
        return self._contest.winner

    @property
    def steps(self) -> int:
        """How many steps the run has taken."""
        return self._contest.step

    @property
    def current(self) -> Lane:
        """The lane that has the model: another one after a swap."""
        return self._contest.here

    def step(self, closure: Tensor | float | Closure | None = None) -> Any:
        """Take a step with the optimizer of the lane in the model.

        Args:
            closure: the loss of the minibatch whose gradients are there; or a function that returns it, with a backward
                pass of its own or without; or None after `observe`.
        """
        if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks:
            return self._step_between_hooks(closure)
        return self._step(closure)

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it, and the lane's own step is wrapped already

    def _step(self, closure: Tensor | float | Closure | None) -> Any:
        contest, loss = self._contest, closure
        self._adopt()
        self._follow_scheduler()
        if callable(closure):
            contest.check(0.0)
            loss = self._evaluated(closure)
        loss = checked(loss)
        counts = None if callable(closure) and contest.observed else loss  # frameworks scale what closures return
        contest.check(counts)
        with Uninterrupted():
            contest.train(counts)
        self._show_rates()
        return loss

    def _step_between_hooks(self, closure: Tensor | float | Closure | None) -> Any:
        """Run the hooks around a step that were registered on the race, as torch does."""
        args: tuple[Any, ...] = (closure,)
        settings: dict[str, Any] = {}
        for before in list(self._optimizer_step_pre_hooks.values()):
            changed = before(self, args, settings)
            if changed is not None:
                args, settings = changed
        loss = self._step(*args, **settings)
        for after in list(self._optimizer_step_post_hooks.values()):
            after(self, args, settings)
        return loss

    def _evaluated(self, closure: Closure) -> Any:
        """The loss that a closure returns; its gradients are there afterwards, whoever computed them."""
        seen: list[Tensor] = []
        handle = torch.autograd.graph.register_multi_grad_hook(
            [p for p in self._contest.seat.weights if p.requires_grad], seen.append, mode="any"
        )
        try:
            with torch.enable_grad():
                loss = closure()
        finally:
            handle.remove()
        if loss is None and not seen and _is_of_lightning(closure):
            return None
        if not seen:
            if not isinstance(loss, Tensor) or not loss.requires_grad:
                raise ClosureError(
                    f"The closure returned {loss!r} and ran no backward pass; return the loss with its graph, or call "
                    "backward() in the closure."
                )
            checked(loss)
            self.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
        return loss

    def _adopt(self) -> None:
        """Parameters can have been replaced until the first step."""
        if not self._contest.begun:
            optimizers = [lane.optimizer for lane in self._contest.lanes]
            self._contest.seat.adopt(self.param_groups, optimizers)

    def observe(self, loss: Tensor | float) -> None:
        """Give the race the loss of the next `step()`, where a framework calls it; of several, the mean counts.

        It takes the place of the loss that the closure of a framework returns.
        """
        number = checked(loss)
        if number is None:
            raise LossError("observe(None): give the loss of the minibatch, a tensor with one number, or a number.")
        self._contest.observed.append(copied(number))

    def eval(self) -> None:
        """Put the weights that the race would hand over now into the model: the average of the leader's.

        `eval` and `train` of an optimizer are the convention of Schedule-Free (Defazio et al. 2024).
        """
        self._contest.evaluate()

    def train(self) -> None:
        """Put the weights back that train."""
        self._contest.resume()

    def calibrate(self, batches: Iterable[Any]) -> None:
        """Under `eval`, compute the statistics of batch norm from minibatches; `train` brings the old ones back."""
        if self._contest.handover.aside is None:
            raise UnsupportedError("calibrate() is for averaged weights; call optimizer.eval() first.")
        weights = self._contest.seat.weights
        with torch.random.fork_rng([weights[0].device] if weights[0].is_cuda else []):
            update_bn(batches, self._contest.seat.model, weights[0].device)

    def finish(self, steps: int) -> None:
        """End the run: rates fall to zero over so many more steps. A race that is under way ends now."""
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise SettingError(f"finish(steps={steps!r}): give the number of steps that are left, at least 1.")
        with Uninterrupted():
            self._contest.finish(steps)

    def standings(self) -> Standings:
        """How the lanes have done; it prints as a table."""
        return Standings.of(self._contest)

    def curves(self) -> dict[str, float]:
        """The latest step as numbers for a logger: the lane that took it, counted from 0, with its rate and its loss.

        It waits for the device, so do not call it in every step of a fast run.
        """
        if self._contest.latest is None:
            return {}
        lane, loss = self._contest.latest
        name = lane.name.replace(" ", "_").replace("#", "")
        rate = lane.optimizer.param_groups[0].get("lr")
        found = {"lane": self._contest.lanes.index(lane), f"rate/{name}": rate, f"loss/{name}": loss}
        return {key: float(value) for key, value in found.items() if value is not None}

    def _remember_buffers(self) -> None:
        """Keep the buffers as they are before the first forward pass, which changes those of batch norm."""
        hook = _FirstForward(self._contest)
        hook.handle = self._contest.seat.model.register_forward_pre_hook(hook)

    def state_dict(self) -> dict[str, Any]:
        """All of the race: lanes, weights that train, averages, state. Load the model's checkpoint before it."""
        self._adopt()
        saved = checkpoint.save(self._contest)
        return {**super().state_dict(), "state": entries(self._contest, saved), KEY: saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on exactly where another race was; nothing changes if the checkpoint does not fit."""
        self._adopt()
        if is_distributed(state_dict):
            state_dict = {**state_dict, KEY: rebuilt(self._contest, state_dict)}
            if state_dict[KEY] is None:  # the race had not begun, and nor has this one
                return
        saved, groups = opened(state_dict, self.param_groups)
        saved = checkpoint.checked(saved, self._contest)
        with Uninterrupted():
            checkpoint.load(saved, self._contest)
            for group, values in zip(self.param_groups, groups, strict=True):
                group.update({name: value for name, value in values.items() if name != "params"})
            self._remember_shown()

    def _remember_shown(self) -> None:
        """Keep what the groups show, to find out what others have written into them."""
        self._shown, self._momentum = [group.get("lr") for group in self.param_groups], momentum_of(self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to every lane; a rate that is given is scaled in each lane as its first rate is."""
        contest = self.__dict__.get("_contest")
        if contest is not None and "_shown" in self.__dict__:
            check_added(param_group, contest.seat.model)
        super().add_param_group(param_group)
        if contest is not None and "_shown" in self.__dict__:
            contest.add(self.param_groups[-1], param_group.get("lr"))
            self._remember_shown()

    def __getstate__(self) -> dict[str, Any]:
        """Torch's own keeps the groups alone. A scheduler leaves a `step` on the object, bound to the original."""
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not self._contest.begun:
            self._remember_buffers()

    def __getattr__(self, name: str) -> Any:
        """Names of the race of before say what stands in their place."""
        raise AttributeError(gone_name(name) or f"{type(self).__name__!r} object has no attribute {name!r}")

    def _follow_scheduler(self) -> None:
        """Take over what a scheduler around the race, or its user, has made of the rates: they replace the schedule."""
        contest, groups = self._contest, self.param_groups
        if contest.base is None:
            written = "initial_lr" in groups[0]
            for group, shown in zip(groups, self._shown, strict=True):
                written = written or group.get("lr") != shown
            if not written:
                return
        refuse_momentum(groups, self._momentum)
        base = contest.base or base_of(groups, self._shown, contest.lanes[0], contest.here)
        scale = scale_of(groups, base)
        if contest.base is None and "initial_lr" not in groups[0] and not self._chosen:
            warn_of_rate(groups[0]["lr"], scale)
        contest.scale, contest.base, contest.scheduled = scale, base, False

    def _show_rates(self) -> None:
        here = self._contest.here.optimizer.param_groups
        around = self._contest.base is not None
        for number, group in enumerate(self.param_groups):
            rate = here[number if len(here) == len(self.param_groups) else 0].get("lr")
            if around:
                group["lane_lr"] = rate
            else:
                group["lr"] = self._shown[number] = float(rate) if isinstance(rate, Tensor) else rate


class _FirstForward:
    """A hook of the model, which is removed by the first forward pass of training; a copy of it does nothing."""

    def __init__(self, contest: Contest) -> None:
        self.contest: weakref.ref[Contest] | None = weakref.ref(contest)
        self.handle: RemovableHandle | None = None

    def __call__(self, model: nn.Module, _: Any) -> None:
        contest = self.contest() if self.contest is not None else None
        if self.handle is not None and model.training and torch.is_grad_enabled():
            self.handle.remove()
            if contest is not None:
                contest.begin_values()

    def __getstate__(self) -> dict[str, Any]:
        return {"contest": None, "handle": None}


def _is_of_lightning(closure: Closure) -> bool:
    """Whether Lightning has made the closure: it is empty where the step has none, and where a minibatch is skipped."""
    return str(getattr(getattr(closure, "func", None), "__module__", "")).startswith(
        ("lightning.", "pytorch_lightning.")
    )
