"""Candidate updates and the exact way back.

A move belongs to one step:

    move.prepare()          save θ and this step's gradients
    move.to(arm)            put the parameters where that arm takes them, as often as there are trials
    move.back()             or return them, bit for bit
    move.commit(arm)        this one it is, or None: the base optimizer's state advances, exactly once
    move.forget()           let go of this step's tensors

Candidates are always computed from the saved θ, never from one another: after a trial at a rate of 100, the difference
would be all rounding. Gradients are held here, so a closure may clear or overwrite `.grad` in a trial as it likes.

Of parameters in bfloat16 or float16 the saved θ is kept in float32 from step to step; see `masters`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim.moves.finite import FiniteCheck
from hotswap.optim.moves.masters import ROUNDED, Masters
from hotswap.optim.moves.shards import local

__all__ = ["Buffers", "Group", "Kind", "Move", "Moving", "refuse_sparse", "with_values"]

Group = dict[str, Any]
NONE: Mapping[int, Tensor] = {}


@contextmanager
def with_values(base: Optimizer, values: dict[str, Any], scale: Callable[[Group], float]) -> Iterator[None]:
    """The base's parameter groups with `values` in place of the user's, who gets his own back."""
    saved = [{name: group[name] for name in values if name in group} for group in base.param_groups]
    try:
        for group in base.param_groups:
            ratio = scale(group)
            group.update({name: value * ratio if name == "lr" else value for name, value in values.items()})
        yield
    finally:
        for group, own in zip(base.param_groups, saved, strict=True):
            group.update(own)


class Buffers:
    """One tensor like each parameter, kept from step to step so that no step allocates.

    Like those in bfloat16 or float16 in float32, if `widened`.
    """

    def __init__(self, *, widened: bool = False) -> None:
        self._by_id: dict[int, Tensor] = {}
        self._widened = widened

    def like(self, owners: list[Tensor]) -> list[Tensor]:
        """A buffer for each of the parameters; what is in it is left over from before."""
        return [self._one(owner) for owner in owners]

    def _one(self, owner: Tensor) -> Tensor:
        buffer, parameter = self._by_id.get(id(owner)), local(owner)
        dtype = torch.float32 if self._widened and parameter.dtype in ROUNDED else parameter.dtype
        if buffer is None or not _alike(buffer, parameter, dtype):
            buffer = self._by_id[id(owner)] = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
        return buffer


def _alike(one: Tensor, other: Tensor, dtype: torch.dtype) -> bool:
    return one.is_same_size(other) and one.dtype is dtype and one.device == other.device


class Kind(NamedTuple):
    """What decides how a parameter is moved."""

    rounded: bool
    """It is the rounding of a float32 value that is kept."""
    sparse: bool
    """Its gradient is."""


class Moving(NamedTuple):
    """Parameters of one group and kind that have a gradient, their gradients, and their values before the step.

    Where processes share a parameter, what moves here is this process's part; `owners` and `held` are the whole.
    """

    group: Group
    kind: Kind
    owners: list[Tensor]
    held: list[Tensor]
    """The gradients as they were found."""
    parameters: list[Tensor]
    gradients: list[Tensor]
    origin: list[Tensor]

    def back(self) -> None:
        """Return to the origin, bit for bit."""
        torch._foreach_copy_(self.parameters, self.origin)


@dataclass
class Move(ABC):
    """The candidate updates of a step."""

    base: Optimizer
    arms: Arms
    initial_lr: float
    agree: Callable[[bool], bool] = field(default=bool, repr=False)
    """Whether something holds in all processes, where each has its own part of the gradients."""
    masters: Masters = field(default_factory=Masters, repr=False)
    _copies: Buffers = field(default_factory=Buffers, repr=False)
    _moving: list[Moving] = field(default_factory=list, repr=False)
    _finite: FiniteCheck = field(default_factory=FiniteCheck, repr=False)
    _unknown: bool = False
    """Whether the gradients are finite."""

    def scale(self, group: Group) -> float:
        """A parameter group's rate in units of the arm's: 1 in the first group until a scheduler changes it."""
        return float(group["lr"]) / self.initial_lr if "lr" in group else 1.0

    def prepare(self, exact: Mapping[int, Tensor] = NONE) -> None:
        """Save θ and the gradients, where `.grad` would round them those in `exact`, by the parameter's id."""
        self._moving = []
        for group in self.base.param_groups:
            kinds: dict[tuple[bool, bool], tuple[list[Tensor], list[Tensor]]] = {}
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    key = parameter.dtype in ROUNDED, gradient.layout is not torch.strided
                    owners, held = kinds.setdefault(key, ([], []))
                    owners.append(parameter)
                    held.append(gradient)
            for key, (owners, held) in kinds.items():
                kind = Kind(*key)
                found = [exact.get(id(p), g) for p, g in zip(owners, held, strict=True)] if kind.rounded else held
                gradients = [gradient.coalesce() if kind.sparse else local(gradient) for gradient in found]
                parameters = [local(owner) for owner in owners]
                origin = self._origin(kind, owners, parameters)
                self._moving.append(Moving(group, kind, owners, held, parameters, gradients, origin))
        self.look_at_gradients()

    def _origin(self, kind: Kind, owners: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
        if kind.rounded:
            return [self.masters.follow(owner) for owner in owners]
        origin = self._copies.like(owners)
        torch._foreach_copy_(origin, parameters)
        return origin

    @abstractmethod
    def to(self, arm: int) -> None:
        """Put the parameters where `arm` takes them."""

    def back(self) -> None:
        """Put the parameters back to the saved θ, bit for bit."""
        for moving in self._moving:
            moving.back()

    def has_moved(self, share: float) -> bool:
        """Whether the parameters together are away from the saved θ by more than this share of its length."""
        moved = length = 0.0
        for moving in self._moving:
            for parameter, saved in zip(moving.parameters, moving.origin, strict=True):
                moved += float((parameter - saved).double().square().sum())
                length += float(saved.double().square().sum())
        return moved > share**2 * length

    @abstractmethod
    def commit(self, arm: int | None) -> None:
        """Let the base optimizer's state advance by this step's gradient, and what is kept in float32 go with `arm`.

        The parameters stay where they are: at the arm's candidate, or back at θ for None.
        """

    def forget(self) -> None:
        """Put the gradients of the start point back and let go of this step; buffers stay for the next one."""
        self.show_gradients()
        self._moving, self._unknown = [], False

    def show_gradients(self) -> None:
        """Put the gradients of the start point where they were found."""
        for moving in self._moving:
            for owner, gradient in zip(moving.owners, moving.held, strict=True):
                owner.grad = gradient

    def hide_gradients(self) -> None:
        """Take the gradients out of the way of a closure's own zero_grad and backward."""
        for moving in self._moving:
            for owner in moving.owners:
                owner.grad = None

    def refuse_infinite(self, parameters: list[Tensor]) -> None:
        """Before gradients are changed: clipping would hide what is not finite."""
        found = [local(p.grad) for p in parameters if p.grad is not None]
        self._finite.ask([gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in found])
        self._unknown = True
        self.check_gradients()

    def look_at_gradients(self) -> None:
        """Begin to find out whether all gradients are finite, without waiting for the device."""
        gradients: list[Tensor] = []
        for moving in self._moving:
            gradients += (
                [gradient.values() for gradient in moving.gradients] if moving.kind.sparse else moving.gradients
            )
        self._finite.ask(gradients)
        self._unknown = True

    def check_gradients(self) -> None:
        """Raise where a gradient is not finite: the step would be NaN, and so would the base's state, for good."""
        if not self._unknown:
            return
        self._unknown = False
        finite = self._finite.answer()
        if not self.agree(finite):
            raise ClosureError(
                "The loss is finite but its gradient is not, so no step can be taken; nothing was changed. Look for a "
                "square root, a logarithm or a division at its edge, or skip this minibatch."
            )


def refuse_sparse(moving: Moving, *names: str) -> None:
    """What would touch every row of a parameter does not go with a gradient that has few."""
    for name in names:
        if moving.kind.sparse and moving.group.get(name):
            raise UnsupportedError(
                f"A parameter with a sparse gradient cannot have {name}={moving.group[name]:g}: it would move rows "
                f"that the gradient does not; put such parameters in a group with {name}=0, or use dense gradients."
            )
