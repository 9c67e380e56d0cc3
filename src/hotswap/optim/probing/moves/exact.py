"""The move for any base optimizer and any hyperparameters: for every trial, restore, set the values, step."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hotswap.errors import UnsupportedError
from hotswap.optim.probing.moves.base import NO_GRADIENTS, Move, ParamGroup, with_values
from hotswap.optim.probing.moves.slope import SlopeSum
from hotswap.optim.probing.moves.states import copied, copied_entry

__all__ = ["Exact"]


@dataclass
class Exact(Move):
    """For every trial, restore parameters and state, set the arm's values, and let the base step.

    Slower than the other moves, and it keeps a copy of the base's state.
    """

    _state: dict[Any, Any] = field(default_factory=dict, repr=False)
    _groups: list[ParamGroup] = field(default_factory=list, repr=False)
    _attributes: dict[str, Any] = field(default_factory=dict, repr=False)
    """Numbers and tensors that are attributes of the base itself: some count their steps there."""
    _advanced: bool = False

    def prepare(self, unrounded: Mapping[int, Tensor] = NO_GRADIENTS) -> None:
        """See `Move.prepare`."""
        super().prepare(unrounded)
        if any(moving.kind.low_precision for moving in self._moving):
            raise UnsupportedError(
                f"HotSwap around {type(self.base).__name__} with these arms lets it step the parameters themselves, "
                "and in bfloat16 or float16 most steps would vanish in rounding; keep the parameters in float32 and "
                "use torch.autocast."
            )
        self.check_gradients()
        self._state = {key: copied_entry(entry) for key, entry in self.base.state.items()}
        self._groups = [copied({k: v for k, v in group.items() if k != "params"}) for group in self.base.param_groups]
        numbers = {name: value for name, value in vars(self.base).items() if isinstance(value, int | float | Tensor)}
        self._attributes = copied(numbers)
        self._advanced = False

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        self.back()
        for moving in self._moving:
            for owner, gradient in zip(moving.owners, moving.held, strict=True):
                owner.grad = gradient.clone()  # a base may write into it
        self._advanced = True  # set before: the step may raise when it has changed something
        with with_values(self.base, self.base_values(arm), self.scale):
            self.base.step()
        self.hide_gradients()

    def expected(self, arm: int) -> float:
        """See `Move.expected`: from the parameters, which are at the candidate."""
        total = SlopeSum()
        for moving in self._moving:
            rows = zip(moving.owners, moving.gradients, moving.origin, moving.parameters, strict=True)
            for owner, gradient, origin, parameter in rows:
                total.add(1.0, owner, gradient, origin - parameter)
        return self._agreed(total)

    def back(self) -> None:
        """See `Move.back`; the base's state goes back too."""
        super().back()
        if self._advanced:
            self.base.state.clear()
            self.base.state.update({key: copied_entry(entry) for key, entry in self._state.items()})
            for group, saved in zip(self.base.param_groups, self._groups, strict=True):
                _restore(group, saved)  # some optimizers count their steps in the group
            vars(self.base).update(copied(self._attributes))
            self._advanced = False

    def commit(self, arm: int | None) -> None:
        """See `Move.commit`: the step to the last candidate has done it; otherwise a step whose move is undone does."""
        if not self._advanced:
            self.to(len(self.arms) - 1)
            super().back()

    def forget(self) -> None:
        """See `Move.forget`."""
        super().forget()
        self._state, self._groups, self._attributes = {}, [], {}


def _restore(group: ParamGroup, saved: ParamGroup) -> None:
    """Restore a group's values. A tensor is written to, not replaced: others may hold a reference to it.

    What was not there before is taken out again: some optimizers begin to count their steps there in the first.
    """
    for name in [name for name in group if name not in saved and name != "params"]:
        del group[name]
    for name, value in saved.items():
        if isinstance(value, Tensor) and isinstance(group.get(name), Tensor):
            group[name].copy_(value)
        else:
            group[name] = deepcopy(value)
