"""Candidate updates and the exact way back.

A move belongs to one step. `prepare` saves θ and lets the base optimizer's state advance, exactly once; `to(arm)` puts
the parameters where that arm would take them; `back()` returns them bit for bit. Candidates are always computed from
the saved θ, never from one another: after a trial at a rate of 100, the difference would be all rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.errors import UnsupportedError

__all__ = ["Exact", "GradientMove", "LinearMove", "Move", "move_for", "with_values"]

Group = dict[str, Any]
Scale = Callable[[Group], float]
"""A parameter group's rate in units of the arm's: 1 in the first group until a scheduler changes it."""

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


def move_for(base: Optimizer, arms: Arms, scale: Scale, linear: bool | None) -> Move:
    """The cheapest move that is exact for this base and these arms."""
    for refused, reason in REFUSED_BASES.items():
        if isinstance(base, refused):
            raise UnsupportedError(f"HotSwap cannot wrap {type(base).__name__}: {reason}.")
    if arms.names != ("lr",):
        return Exact(base, arms, scale)
    if type(base) is torch.optim.SGD:
        return GradientMove(base, arms, scale)
    if linear or (linear is None and type(base) in LINEAR_BASES):
        return LinearMove(base, arms, scale)
    return Exact(base, arms, scale)


@contextmanager
def with_values(base: Optimizer, values: dict[str, Any], scale: Scale) -> Iterator[None]:
    """The base's parameter groups with `values` in place of the user's, who gets his own back."""
    saved = [{name: group[name] for name in values} for group in base.param_groups]
    scales = [scale(group) for group in base.param_groups]
    try:
        for group, ratio in zip(base.param_groups, scales, strict=True):
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
        if buffer is None or (buffer.shape, buffer.dtype, buffer.device) != (
            parameter.shape,
            parameter.dtype,
            parameter.device,
        ):
            buffer = self._by_id[id(parameter)] = torch.empty_like(parameter, requires_grad=False)
        return buffer


@dataclass
class Move(ABC):
    """The candidate updates of a step."""

    base: Optimizer
    arms: Arms
    scale: Scale
    _copies: Buffers = field(default_factory=Buffers, repr=False)

    @abstractmethod
    def prepare(self) -> None:
        """Save θ and advance the base optimizer's state by this step's gradient."""

    @abstractmethod
    def to(self, arm: int) -> None:
        """Put the parameters where `arm` takes them."""

    @abstractmethod
    def back(self) -> None:
        """Put the parameters back to the saved θ, bit for bit."""

    @abstractmethod
    def forget(self) -> None:
        """Let go of this step's tensors; the buffers for the copies of θ stay for the next one."""

    def _moving(self) -> Iterator[tuple[Group, list[Tensor]]]:
        """Each parameter group with those of its parameters that have a gradient."""
        for group in self.base.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moving:
                yield group, moving

    def _save(self, parameters: list[Tensor]) -> list[Tensor]:
        copies = self._copies.like(parameters)
        torch._foreach_copy_(copies, parameters)
        return copies


@dataclass
class Segment:
    """The parameters of one group: `to` puts them at `origin − rate · scale · Σ weight · direction`."""

    parameters: list[Tensor]
    origin: list[Tensor]
    terms: list[tuple[float, list[Tensor]]]
    scale: float
    at_origin: bool

    def to(self, rate: float) -> None:
        """One fused pass over the parameters for each term, and one before it to return to the origin."""
        terms = [(-rate * self.scale * weight, directions) for weight, directions in self.terms]
        if not self.at_origin and not _prefers_lists(self.parameters):
            (factor, directions), *terms = terms
            for target, start, direction in zip(self.parameters, self.origin, directions, strict=True):
                torch.add(start, direction, alpha=factor, out=target)  # both passes in one
        else:
            self.back()
        for factor, directions in terms:
            torch._foreach_add_(self.parameters, directions, alpha=factor)
        self.at_origin = False

    def back(self) -> None:
        """Return to the origin, bit for bit."""
        if not self.at_origin:
            torch._foreach_copy_(self.parameters, self.origin)
            self.at_origin = True


def _prefers_lists(tensors: list[Tensor]) -> bool:
    """Whether two passes over a list beat one pass per tensor: many small tensors on a GPU, where launches count."""
    return tensors[0].is_cuda and sum(tensor.numel() for tensor in tensors) < len(tensors) << 20


@dataclass
class Scaled(Move):
    """Moves along a direction that is the same for every rate: a trial costs one pass over the parameters."""

    _segments: list[Segment] = field(default_factory=list, repr=False)

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        rate = self.arms.axes[0][arm]
        for segment in self._segments:
            segment.to(rate)  # type: ignore[arg-type]  # a rate is a float

    def back(self) -> None:
        """See `Move.back`."""
        for segment in self._segments:
            segment.back()

    def forget(self) -> None:
        """See `Move.forget`."""
        self._segments = []


@dataclass
class GradientMove(Scaled):
    """torch's SGD: its direction lies in the gradients and in its momentum buffers, so θ is the only copy."""

    def prepare(self) -> None:
        """See `Move.prepare`."""
        segments = [(group, moving, self._save(moving)) for group, moving in self._moving()]
        momentum = any(group["momentum"] for group, _, _ in segments)
        if momentum:
            with with_values(self.base, {"lr": 0.0}, self.scale):  # advances the momentum
                self.base.step()
        self._segments = [
            Segment(moving, origin, self._terms(group, moving, origin), self.scale(group), at_origin=not momentum)
            for group, moving, origin in segments
        ]

    def _terms(self, group: Group, moving: list[Tensor], origin: list[Tensor]) -> list[tuple[float, list[Tensor]]]:
        """The direction as torch documents it: `g + λθ`, or the momentum buffer, or (Nesterov) `g + λθ + μ·buffer`."""
        gradients = [parameter.grad for parameter in moving if parameter.grad is not None]
        plain = [(-1.0 if group["maximize"] else 1.0, gradients)]
        if group["weight_decay"]:
            plain.append((float(group["weight_decay"]), origin))
        if not group["momentum"]:
            return plain
        velocity = [self.base.state[parameter]["momentum_buffer"] for parameter in moving]
        return [*plain, (float(group["momentum"]), velocity)] if group["nesterov"] else [(1.0, velocity)]


@dataclass
class LinearMove(Scaled):
    """Any base whose step is linear in its rate: one step of it, from θ = 0, is the direction.

    From zero, because the difference of two nearby θ has few digits left when the step is small. Weight decay needs the
    real θ, so it is taken out of the base's hands: a coupled one is added to the gradient before the step, a decoupled
    one to the displacement after it. Memory: θ and the displacement.
    """

    _displacements: Buffers = field(default_factory=Buffers, repr=False)

    def prepare(self) -> None:
        """See `Move.prepare`."""
        groups = [
            (group, moving, self._save(moving), self._displacements.like(moving)) for group, moving in self._moving()
        ]
        for group, moving, _, room in groups:
            _take_over_decay(group, moving, room, decoupled=self._decouples(group))
            torch._foreach_zero_(moving)
        unit = {"lr": 1.0} | ({"weight_decay": 0.0} if "weight_decay" in self.base.defaults else {})
        with with_values(self.base, unit, lambda group: 1.0):
            self.base.step()
        self._segments = []
        for group, moving, origin, room in groups:
            _give_back_gradients(group, moving, room, decoupled=self._decouples(group))
            torch._foreach_copy_(room, moving)
            terms = [(-1.0, room)]
            if group.get("weight_decay") and self._decouples(group):
                terms.append((float(group["weight_decay"]), origin))
            self._segments.append(Segment(moving, origin, terms, self.scale(group), at_origin=False))

    def _decouples(self, group: Group) -> bool:
        return bool(group.get("decoupled_weight_decay")) or type(self.base) in DECOUPLED_BASES


def _take_over_decay(group: Group, moving: list[Tensor], room: list[Tensor], *, decoupled: bool) -> None:
    """Add a coupled weight decay to the gradients, whose own values wait in `room` meanwhile."""
    if not group.get("weight_decay") or decoupled:
        return
    gradients = [parameter.grad for parameter in moving if parameter.grad is not None]
    torch._foreach_copy_(room, gradients)
    sign = -1.0 if group.get("maximize") else 1.0
    torch._foreach_add_(gradients, moving, alpha=sign * float(group["weight_decay"]))


def _give_back_gradients(group: Group, moving: list[Tensor], room: list[Tensor], *, decoupled: bool) -> None:
    if not group.get("weight_decay") or decoupled:
        return
    torch._foreach_copy_([parameter.grad for parameter in moving if parameter.grad is not None], room)


@dataclass
class Exact(Move):
    """Any base and any hyperparameters: restore, set, step, for every trial. Slower, and a copy of the base's state."""

    _origin: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list, repr=False)
    _state: dict[Tensor, dict[str, Any]] = field(default_factory=dict, repr=False)
    _groups: list[Group] = field(default_factory=list, repr=False)

    def prepare(self) -> None:
        """See `Move.prepare`. The state advances with the last candidate, whichever that is."""
        self._origin = [(moving, self._save(moving)) for _, moving in self._moving()]
        self._state = {parameter: _copied(state) for parameter, state in self.base.state.items()}
        self._groups = [_copied({k: v for k, v in group.items() if k != "params"}) for group in self.base.param_groups]

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        self.back()
        self.base.state.clear()
        self.base.state.update({parameter: _copied(state) for parameter, state in self._state.items()})
        for group, saved in zip(self.base.param_groups, self._groups, strict=True):
            group.update(_copied(saved))  # some optimizers count their steps in the group
        with with_values(self.base, self.arms.values(arm), self.scale):
            self.base.step()

    def back(self) -> None:
        """See `Move.back`."""
        for parameters, origin in self._origin:
            torch._foreach_copy_(parameters, origin)

    def forget(self) -> None:
        """See `Move.forget`."""
        self._origin, self._state, self._groups = [], {}, []


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else deepcopy(value) for name, value in state.items()}
