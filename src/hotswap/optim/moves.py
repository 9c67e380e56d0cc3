"""Candidate updates and the exact way back.

A move belongs to one step:

    move.prepare()          save θ and this step's gradients
    move.to(arm)            put the parameters where that arm takes them, as often as there are trials
    move.back()             or return them, bit for bit
    move.commit()           let the base optimizer's state advance, exactly once, wherever the parameters are
    move.forget()           let go of this step's tensors

Candidates are always computed from the saved θ, never from one another: after a trial at a rate of 100, the difference
would be all rounding. Gradients are held here, so a closure may clear or overwrite `.grad` in a trial as it likes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.errors import ClosureError, UnsupportedError

__all__ = ["Exact", "GradientMove", "LinearMove", "Move", "move_for", "with_values"]

Group = dict[str, Any]

# Bases whose step is `θ − lr · direction` with a direction that does not depend on lr, so that one step of theirs gives
# every candidate. Exact types: a subclass may do anything.
LINEAR_BASES: frozenset[type[Optimizer]] = frozenset(
    {
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Adadelta,
        torch.optim.Adagrad,
        torch.optim.Adamax,
        torch.optim.Muon,
    }
)
DECOUPLED_BASES: frozenset[type[Optimizer]] = frozenset({torch.optim.Muon})  # decay outside the direction, no flag
REFUSED_BASES: dict[type[Optimizer], str] = {
    torch.optim.LBFGS: "LBFGS evaluates the closure itself and searches along its own direction",
    torch.optim.Rprop: "Rprop reads lr on its first step only, so swapping it would change nothing",
    torch.optim.ASGD: "ASGD applies a rate one step after it was set, so a trial could not judge it",
}


def move_for(base: Optimizer, arms: Arms, initial_lr: float, linear: bool | None) -> Move:
    """The cheapest move that is exact for this base and these arms."""
    for refused, reason in REFUSED_BASES.items():
        if isinstance(base, refused):
            raise UnsupportedError(f"HotSwap cannot wrap {type(base).__name__}: {reason}.")
    if arms.names == ("lr",) and linear is not False:
        if type(base) is torch.optim.SGD:
            return GradientMove(base, arms, initial_lr)
        if linear or type(base) in LINEAR_BASES:
            return LinearMove(base, arms, initial_lr)
    return Exact(base, arms, initial_lr)


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
    """One tensor like each parameter, kept from step to step so that no step allocates."""

    def __init__(self) -> None:
        self._by_id: dict[int, Tensor] = {}

    def like(self, parameters: list[Tensor]) -> list[Tensor]:
        """A buffer for each of the parameters; what is in it is left over from before."""
        return [self._one(parameter) for parameter in parameters]

    def _one(self, parameter: Tensor) -> Tensor:
        buffer = self._by_id.get(id(parameter))
        form = (parameter.shape, parameter.dtype, parameter.device)
        if buffer is None or (buffer.shape, buffer.dtype, buffer.device) != form:
            buffer = self._by_id[id(parameter)] = torch.empty_like(parameter, requires_grad=False)
        return buffer


class Moving(NamedTuple):
    """The parameters of one group that have a gradient, their gradients, and their values before the step."""

    group: Group
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
    _copies: Buffers = field(default_factory=Buffers, repr=False)
    _moving: list[Moving] = field(default_factory=list, repr=False)

    def scale(self, group: Group) -> float:
        """A parameter group's rate in units of the arm's: 1 in the first group until a scheduler changes it."""
        return float(group["lr"]) / self.initial_lr if "lr" in group else 1.0

    def prepare(self) -> None:
        """Save θ and the gradients."""
        self._moving = []
        for group in self.base.param_groups:
            pairs = [(parameter, parameter.grad) for parameter in group["params"] if parameter.grad is not None]
            if pairs:
                parameters, gradients = (list(column) for column in zip(*pairs, strict=True))
                origin = self._copies.like(parameters)
                torch._foreach_copy_(origin, parameters)
                self._moving.append(Moving(group, parameters, gradients, origin))

    @abstractmethod
    def to(self, arm: int) -> None:
        """Put the parameters where `arm` takes them."""

    def back(self) -> None:
        """Put the parameters back to the saved θ, bit for bit."""
        for moving in self._moving:
            moving.back()

    @abstractmethod
    def commit(self) -> None:
        """Let the base optimizer's state advance by this step's gradient; the parameters stay where they are."""

    def forget(self) -> None:
        """Put the gradients of the start point back and let go of this step; buffers stay for the next one."""
        for moving in self._moving:
            for parameter, gradient in zip(moving.parameters, moving.gradients, strict=True):
                parameter.grad = gradient
        self._moving = []

    def hide_gradients(self) -> None:
        """Take the gradients out of the way of a closure's own zero_grad and backward."""
        for moving in self._moving:
            for parameter in moving.parameters:
                parameter.grad = None

    def check_gradients(self) -> None:
        """Raise where a gradient is not finite: every trial would be NaN, and so would the base's state, for good."""
        sizes = [torch._foreach_norm(moving.gradients, ord=torch.inf) for moving in self._moving]
        if not all(bool(torch.stack([size.float() for size in group]).isfinite().all()) for group in sizes):
            raise ClosureError(
                "The loss is finite but its gradient is not, so no step can be taken; nothing was changed. Look for a "
                "square root, a logarithm or a division at its edge, or skip this minibatch."
            )


@dataclass
class Segment:
    """The parameters of one group: `to` puts them at `origin − rate · scale · Σ weight · direction`."""

    moving: Moving
    terms: list[tuple[float, list[Tensor]]]
    scale: float
    at_origin: bool
    as_list: bool = field(init=False)

    def __post_init__(self) -> None:
        self.as_list = _prefers_lists(self.moving.parameters)

    def to(self, rate: float) -> None:
        """One fused pass over the parameters for each term, and one before it to return to the origin."""
        parameters = self.moving.parameters
        terms = [(-rate * self.scale * weight, directions) for weight, directions in self.terms]
        if not self.at_origin and not self.as_list:
            (factor, directions), *terms = terms
            for target, start, direction in zip(parameters, self.moving.origin, directions, strict=True):
                torch.add(start, direction, alpha=factor, out=target)  # both passes in one
        elif not self.at_origin:
            self.moving.back()
        for factor, directions in terms:
            torch._foreach_add_(parameters, directions, alpha=factor)
        self.at_origin = False


def _prefers_lists(tensors: list[Tensor]) -> bool:
    """Whether two passes over a list beat one pass per tensor: many small tensors on a GPU, where launches count."""
    return tensors[0].is_cuda and sum(tensor.numel() for tensor in tensors) < len(tensors) << 20


@dataclass
class Scaled(Move):
    """Moves along a direction that is the same for every rate: a trial costs a pass or two over the parameters."""

    _segments: list[Segment] = field(default_factory=list, repr=False)

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        rate = self.arms.axes[0][arm]
        for segment in self._segments:
            segment.to(rate)  # type: ignore[arg-type]  # a rate is a float

    def forget(self) -> None:
        """See `Move.forget`."""
        super().forget()
        self._segments = []


@dataclass
class GradientMove(Scaled):
    """torch's SGD: its direction is a sum of the gradient, θ and the momentum buffer, so θ is the only copy.

    With g′ = ±g + λθ the buffer becomes b′ = μb + (1 − τ)g′, on its first step b′ = g′, and the direction is g′ without
    momentum, b′ with it, g′ + μb′ with Nesterov's. The buffer itself changes in `commit`.
    """

    def prepare(self) -> None:
        """See `Move.prepare`."""
        super().prepare()
        self._moving = [part for moving in self._moving for part in self._by_age(moving)]
        if any(moving.group["momentum"] for moving in self._moving):
            self.check_gradients()
        self._segments = [
            Segment(moving, self._terms(moving), self.scale(moving.group), at_origin=True) for moving in self._moving
        ]

    def _by_age(self, moving: Moving) -> list[Moving]:
        """A group's parameters that have a buffer, and those that do not yet, which take their first step."""
        if not moving.group["momentum"]:
            return [moving]
        rows = list(zip(moving.parameters, moving.gradients, moving.origin, strict=True))
        old = [row for row in rows if self._buffer(row[0]) is not None]
        new = [row for row in rows if self._buffer(row[0]) is None]
        return [Moving(moving.group, *(list(c) for c in zip(*part, strict=True))) for part in (old, new) if part]

    def _buffer(self, parameter: Tensor) -> Tensor | None:
        state = self.base.state.get(parameter)
        return state.get("momentum_buffer") if state else None

    def _buffers(self, moving: Moving) -> list[Tensor]:
        """The momentum buffers; none on their first step."""
        found = (self._buffer(parameter) for parameter in moving.parameters)
        return [buffer for buffer in found if buffer is not None]

    def _terms(self, moving: Moving) -> list[tuple[float, list[Tensor]]]:
        group, buffers = moving.group, self._buffers(moving)
        mu, fresh = float(group["momentum"]), 1.0
        if mu:
            fresh = 1.0 - float(group["dampening"]) if buffers else 1.0
            fresh = 1.0 + mu * fresh if group["nesterov"] else fresh
        terms = [(-fresh if group["maximize"] else fresh, moving.gradients)]
        if group["weight_decay"]:
            terms.append((fresh * float(group["weight_decay"]), moving.origin))
        if mu and buffers:
            terms.append((mu * mu if group["nesterov"] else mu, buffers))
        return terms

    def commit(self) -> None:
        """See `Move.commit`."""
        for moving in self._moving:
            group, buffers = moving.group, self._buffers(moving)
            if not group["momentum"]:
                continue
            fresh = 1.0 - float(group["dampening"])
            if buffers:
                torch._foreach_mul_(buffers, float(group["momentum"]))
            else:
                buffers, fresh = [torch.zeros_like(parameter) for parameter in moving.parameters], 1.0
                for parameter, buffer in zip(moving.parameters, buffers, strict=True):
                    self.base.state[parameter]["momentum_buffer"] = buffer
            torch._foreach_add_(buffers, moving.gradients, alpha=-fresh if group["maximize"] else fresh)
            if group["weight_decay"]:
                torch._foreach_add_(buffers, moving.origin, alpha=fresh * float(group["weight_decay"]))


@dataclass
class LinearMove(Scaled):
    """Any base whose step is linear in its rate: one step of it, from θ = 0, is the direction.

    From zero, because the difference of two nearby θ has few digits left when the step is small. Weight decay needs the
    real θ, so it is taken out of the base's hands: a coupled one is added to the gradient before the step, a decoupled
    one to the displacement after it. Memory: θ and the displacement. The base's state advances in `prepare`: to keep it
    from doing so before the search is done would take a copy of that state too.
    """

    _displacements: Buffers = field(default_factory=Buffers, repr=False)

    def prepare(self) -> None:
        """See `Move.prepare`."""
        super().prepare()
        self.check_gradients()
        rooms = [self._displacements.like(moving.parameters) for moving in self._moving]
        try:
            for moving, room in zip(self._moving, rooms, strict=True):
                if self._couples(moving.group):
                    torch._foreach_copy_(room, moving.gradients)  # their own values wait there meanwhile
                    sign = -1.0 if moving.group.get("maximize") else 1.0
                    decay = sign * float(moving.group["weight_decay"])
                    torch._foreach_add_(moving.gradients, moving.origin, alpha=decay)
                torch._foreach_zero_(moving.parameters)
            unit = {"lr": 1.0} | ({"weight_decay": 0.0} if "weight_decay" in self.base.defaults else {})
            with with_values(self.base, unit, lambda group: 1.0):
                self.base.step()
        except BaseException:
            self._return_gradients(rooms)
            self.back()
            raise
        self._return_gradients(rooms)
        self._segments = [self._segment(moving, room) for moving, room in zip(self._moving, rooms, strict=True)]

    def _segment(self, moving: Moving, room: list[Tensor]) -> Segment:
        torch._foreach_copy_(room, moving.parameters)
        terms = [(-1.0, room)]
        if moving.group.get("weight_decay") and not self._couples(moving.group):
            terms.append((float(moving.group["weight_decay"]), moving.origin))
        return Segment(moving, terms, self.scale(moving.group), at_origin=False)

    def _couples(self, group: Group) -> bool:
        """Whether the group's weight decay is part of the gradient."""
        decoupled = group.get("decoupled_weight_decay") or type(self.base) in DECOUPLED_BASES
        return bool(group.get("weight_decay")) and not decoupled

    def _return_gradients(self, rooms: list[list[Tensor]]) -> None:
        for moving, room in zip(self._moving, rooms, strict=True):
            if self._couples(moving.group):
                torch._foreach_copy_(moving.gradients, room)

    def commit(self) -> None:
        """See `Move.commit`: `prepare` has done it."""


@dataclass
class Exact(Move):
    """Any base and any hyperparameters: restore, set, step, for every trial. Slower, and with a copy of the state."""

    _state: dict[Tensor, dict[str, Any]] = field(default_factory=dict, repr=False)
    _groups: list[Group] = field(default_factory=list, repr=False)
    _advanced: bool = False

    def prepare(self) -> None:
        """See `Move.prepare`."""
        super().prepare()
        self.check_gradients()
        self._state = {parameter: _copied(state) for parameter, state in self.base.state.items()}
        self._groups = [_copied({k: v for k, v in group.items() if k != "params"}) for group in self.base.param_groups]
        self._advanced = False

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        self.back()
        for moving in self._moving:
            for parameter, gradient in zip(moving.parameters, moving.gradients, strict=True):
                parameter.grad = gradient.clone()  # a base may write into it
        with with_values(self.base, self.arms.values(arm), self.scale):
            self.base.step()
        self.hide_gradients()
        self._advanced = True

    def back(self) -> None:
        """See `Move.back`; the base's state goes back too."""
        super().back()
        if self._advanced:
            self.base.state.clear()
            self.base.state.update({parameter: _copied(state) for parameter, state in self._state.items()})
            for group, saved in zip(self.base.param_groups, self._groups, strict=True):
                group.update(_copied(saved))  # some optimizers count their steps in the group
            self._advanced = False

    def commit(self) -> None:
        """See `Move.commit`: the last candidate has done it, or a step whose move is taken back does."""
        if not self._advanced:
            self.to(len(self.arms) - 1)
            super().back()

    def forget(self) -> None:
        """See `Move.forget`."""
        super().forget()
        self._state, self._groups = {}, []


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else deepcopy(value) for name, value in state.items()}
