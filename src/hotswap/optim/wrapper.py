"""An optimizer around another one: parameter groups and state are the base's."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any

from torch.optim import Optimizer

from hotswap.optim.adapters import refuse_scalers
from hotswap.optim.validation import check_group

__all__ = ["Wrapper"]


class Wrapper(Optimizer):
    """Shows the base optimizer's parameter groups and state as its own."""

    base: Optimizer
    """The optimizer that turns a gradient into an update."""

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

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """torch's GradScaler asks this of an optimizer before it calls its step, and is refused; others may ask."""
        refuse_scalers(sys._getframe(1))
        return False

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The base's state, and all that is remembered beside it; loading it resumes exactly."""
        for pre_hook in self._optimizer_state_dict_pre_hooks.values():
            pre_hook(self)
        packed = self._packed_state()
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            packed = post_hook(self, packed) or packed
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from `state_dict()`; a state of other settings is refused and changes nothing."""
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        self._load_packed(state_dict)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    @abstractmethod
    def _packed_state(self) -> dict[str, Any]:
        """The base's state with our own in it."""

    @abstractmethod
    def _load_packed(self, state_dict: dict[str, Any]) -> None:
        """The reverse."""
