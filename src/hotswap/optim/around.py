"""What torch expects of an optimizer, for one that goes around another."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.arrays import Array
from hotswap.bandits import Bandit, BanditState
from hotswap.errors import UnsupportedError
from hotswap.optim.agreement import Agreement, Group
from hotswap.optim.checkpoint import OwnState, described, pack, refuse_other_base, unpack
from hotswap.optim.checks import check_group
from hotswap.optim.gradients import Clipping, LossScale
from hotswap.optim.guards import Guard
from hotswap.optim.leftovers import Leftovers
from hotswap.optim.moves import Move, move_for
from hotswap.optim.moves.masters import restore_state
from hotswap.optim.moves.shards import local
from hotswap.optim.records import StepRecord
from hotswap.optim.trials import Closure
from hotswap.optim.warned import warn_of_other_parts
from hotswap.rewards import Reward
from hotswap.searches import Search

__all__ = ["Around"]


class Around(Optimizer):
    """Parameter groups and state are the base's; checkpoints and copies carry what hot swapping adds."""

    base: Optimizer
    arms: Arms
    bandit: Bandit
    search: Search
    reward: Reward
    last_step: StepRecord | None
    """What the latest step did."""

    _linear: bool | None
    _module: nn.Module | None
    _process_group: Group
    _clip: Clipping
    _loss_scale: LossScale | None
    _move: Move
    _bandit_state: BanditState
    _reward_scale: float
    _in_force: int
    """The arm that a step without a search applies."""
    _searched: int
    """How many searches there were."""
    _known: set[str]
    """What has come up."""

    def _begin_anew(self) -> None:
        """What belongs to this object alone, and goes into no copy or checkpoint."""
        self._proposed: tuple[Bandit, Array, BanditState] | None = None  # made where the bandit has just learned
        self._asked: tuple[Closure, Tensor | float] | None = None
        self._busy = False
        self._itself = weakref.ref(self)
        self._guard, self._leftovers = Guard(self._module), Leftovers()
        self._agreement = Agreement(self._process_group, lambda: self._parameters()[0].device)
        self._move.agree = self._agree_on_shards

    def _agree_on_shards(self, holds: bool) -> bool:
        """Gradients are the same in all processes, unless each has a part of them."""
        if not self._agreement.active():
            return holds
        sharded = any(local(parameter) is not parameter for parameter in self._parameters())
        return self._agreement.all(holds) if sharded else holds

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _is_new(self, what: str) -> bool:
        """Whether this has come up for the first time: a warning is given once."""
        new = what not in self._known
        self._known.add(what)
        return new

    def _parts(self) -> dict[str, object]:
        parts = {"bandit": self.bandit, "search": self.search, "reward": self.reward}
        return parts | {"clip_norm": self._clip.norm, "clip_value": self._clip.value}

    @property
    def _real(self) -> Around:
        """This optimizer. Lightning's wrapper inherits our methods and calls them as its own; what they set is ours."""
        return self._itself() or self

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
        check_group(param_group)
        self.base.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The base's state and what the bandit has learned; loading it resumes exactly."""
        for pre_hook in self._optimizer_state_dict_pre_hooks.values():
            pre_hook(self)
        masters = self._move.masters.read(self._parameters())
        scale = None if self._loss_scale is None else (self._loss_scale.value, self._loss_scale.good)
        own = OwnState(
            self._bandit_state,
            self._reward_scale,
            self._in_force,
            self._move.initial_lr,
            masters,
            scale,
            described(self._parts()),
        )
        packed = pack(self.base.state_dict(), self.arms, own)
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            packed = post_hook(self, packed) or packed
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from `state_dict()`; a state of another grid is refused and changes nothing."""
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        plain, own = unpack(state_dict, self.arms)
        refuse_other_base(plain["param_groups"], self.base)
        warn_of_other_parts(own.parts, described(self._parts()))
        self.base.load_state_dict(plain)
        restore_state(self.base, plain)
        real = self._real
        real._bandit_state, real._reward_scale, real._in_force, self._move.initial_lr = own[:4]
        real._proposed = None
        self._move.masters.write(self._parameters(), own.masters)
        if self._loss_scale is not None and own.loss_scale is not None:
            self._loss_scale.value, self._loss_scale.good = own.loss_scale
        real.last_step = None
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("base", "arms", "bandit", "search", "reward", "last_step", "_bandit_state", "_reward_scale")
        flags = (
            "_clip",
            "_loss_scale",
            "_in_force",
            "_searched",
            "_known",
            "_linear",
            "_module",
            "_process_group",
        )
        own = {name: self.__dict__[name] for name in (*kept, *flags)}
        return own | {"_initial_lr": self._move.initial_lr, "_masters": self._move.masters.read(self._parameters())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = dict(state)
        initial_lr, masters = own.pop("_initial_lr"), own.pop("_masters")
        self.__dict__.update(own)
        super().__setstate__({"defaults": self.base.defaults})  # groups and state are the base's
        self._move = move_for(self.base, self.arms, initial_lr, self._linear)
        self._move.masters.write(self._parameters(), masters)
        self._begin_anew()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """torch's GradScaler asks this of an optimizer before it calls its step, and is refused; others may ask."""
        if isinstance(sys._getframe(1).f_locals.get("self"), torch.amp.GradScaler):
            raise UnsupportedError(
                "HotSwap cannot be stepped by a GradScaler: it scales the loss of the gradient pass but not those of "
                "the trials. Train in bfloat16 with torch.autocast, which needs no scaler, or give the optimizer "
                "loss_scale=65536 for float16; and call optimizer.step(closure) directly."
            )
        return False
