"""Moves along a direction that is the same for every rate: a trial costs a pass or two over the parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.optim.moves.base import NONE, Buffers, Group, Kind, Move, Moving, refuse_sparse, with_values
from hotswap.optim.moves.masters import standing_in, widen
from hotswap.optim.moves.shards import local, shared_like

__all__ = ["LINEAR_BASES", "GradientMove", "LinearMove"]

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

    def settled(self, rate: float) -> list[tuple[Tensor, Tensor]]:
        """What is kept in float32, and where it goes."""
        if not self.moving.kind.rounded:
            return []
        rows = zip(self.moving.origin, *(directions for _, directions in self.terms), strict=True)
        return [(origin, self._candidate(rate, origin, list(directions))) for origin, *directions in rows]

    def _candidate(self, rate: float, origin: Tensor, directions: list[Tensor]) -> Tensor:
        """In float32."""
        for (weight, _), direction in zip(self.terms, directions, strict=True):
            origin = torch.add(origin, direction, alpha=-rate * self.scale * weight)
        return origin

    def to(self, rate: float) -> None:
        """One fused pass over the parameters for each term, and one before it to return to the origin."""
        parameters = self.moving.parameters
        if self.moving.kind != Kind(rounded=False, sparse=False):
            moved = zip(parameters, self.moving.origin, *(d for _, d in self.terms), strict=True)
            for parameter, origin, *directions in moved:
                parameter.copy_(self._candidate(rate, origin, directions))
            return
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

    def commit(self, arm: int | None) -> None:
        """See `Move.commit`."""
        rate = None if arm is None else self.arms.axes[0][arm]
        moved = [] if rate is None else [pair for segment in self._segments for pair in segment.settled(rate)]  # type: ignore[arg-type]
        self.advance()  # it reads θ and changes directions, so it comes between
        for origin, candidate in moved:
            origin.copy_(candidate)

    @abstractmethod
    def advance(self) -> None:
        """Let the base optimizer's state advance."""

    def forget(self) -> None:
        """See `Move.forget`."""
        super().forget()
        self._segments = []


@dataclass
class GradientMove(Scaled):
    """torch's SGD: its direction is a sum of the gradient, θ and the momentum buffer, so θ is the only copy.

    With g′ = g + λθ the buffer becomes b′ = μb + (1 − τ)g′, on its first step b′ = g′, and the direction is g′ without
    momentum, b′ with it, g′ + μb′ with Nesterov's. The buffer itself changes in `commit`; it is in float32
    where the parameter is in bfloat16 or float16.
    """

    def prepare(self, exact: Mapping[int, Tensor] = NONE) -> None:
        """See `Move.prepare`."""
        super().prepare(exact)
        for moving in self._moving:
            refuse_sparse(moving, "weight_decay", "momentum")
            if moving.kind.rounded:
                for owner in moving.owners:
                    widen(self.base.state.get(owner, {}))
        self._moving = [part for moving in self._moving for part in self._by_age(moving)]
        self._segments = [
            Segment(moving, self._terms(moving), self.scale(moving.group), at_origin=True) for moving in self._moving
        ]

    def _by_age(self, moving: Moving) -> list[Moving]:
        """A group's parameters that have a buffer, and those that do not yet, which take their first step."""
        if not moving.group["momentum"]:
            return [moving]
        rows = list(zip(*moving[2:], strict=True))
        old = [row for row in rows if self._buffer(row[0]) is not None]
        new = [row for row in rows if self._buffer(row[0]) is None]
        return [Moving(*moving[:2], *(list(c) for c in zip(*part, strict=True))) for part in (old, new) if part]

    def _buffer(self, parameter: Tensor) -> Tensor | None:
        state = self.base.state.get(parameter)
        return state.get("momentum_buffer") if state else None

    def _buffers(self, moving: Moving) -> list[Tensor]:
        """The momentum buffers; none on their first step."""
        found = (self._buffer(owner) for owner in moving.owners)
        return [local(buffer) for buffer in found if buffer is not None]

    def _terms(self, moving: Moving) -> list[tuple[float, list[Tensor]]]:
        group, buffers = moving.group, self._buffers(moving)
        mu, fresh = float(group["momentum"]), 1.0
        if mu:
            fresh = 1.0 - float(group["dampening"]) if buffers else 1.0
            fresh = 1.0 + mu * fresh if group["nesterov"] else fresh
        terms = [(fresh, moving.gradients)]
        if group["weight_decay"]:
            terms.append((fresh * float(group["weight_decay"]), moving.origin))
        if mu and buffers:
            terms.append((mu * mu if group["nesterov"] else mu, buffers))
        return terms

    def advance(self) -> None:
        """See `Scaled.advance`."""
        for moving in self._moving:
            group, buffers = moving.group, self._buffers(moving)
            if not group["momentum"]:
                continue
            fresh = 1.0 - float(group["dampening"])
            if buffers:
                torch._foreach_mul_(buffers, float(group["momentum"]))
            else:
                for owner in moving.owners:
                    dtype = torch.float32 if moving.kind.rounded else owner.dtype
                    self.base.state[owner]["momentum_buffer"] = torch.zeros_like(owner, dtype=dtype)
                buffers, fresh = self._buffers(moving), 1.0
            torch._foreach_add_(buffers, moving.gradients, alpha=fresh)
            if group["weight_decay"]:
                torch._foreach_add_(buffers, moving.origin, alpha=fresh * float(group["weight_decay"]))


@dataclass
class LinearMove(Scaled):
    """Any base whose step is linear in its rate: one step of it, from θ = 0, is the direction.

    From zero, because the difference of two nearby θ has few digits left when the step is small. Weight decay needs the
    real θ, so it is taken out of the base's hands: a coupled one is added to the gradient before the step, a decoupled
    one to the displacement after it. Memory: θ and the displacement. The base's state advances in `prepare`: to keep it
    from doing so before the search is done would take a copy of that state too.

    In place of parameters in bfloat16 or float16 the base steps the room for their displacement, in float32.
    """

    _displacements: Buffers = field(default_factory=lambda: Buffers(widened=True), repr=False)

    def prepare(self, exact: Mapping[int, Tensor] = NONE) -> None:
        """See `Move.prepare`."""
        super().prepare(exact)
        for moving in self._moving:
            refuse_sparse(moving, "weight_decay")
        self.check_gradients()
        rooms = [self._displacements.like(moving.owners) for moving in self._moving]
        owners: list[Tensor] = []
        stand_ins: list[Tensor] = []
        try:
            for moving, room in zip(self._moving, rooms, strict=True):
                if moving.kind.rounded:
                    owners += moving.owners
                    stand_ins += self._stand_ins(moving, room)
                    continue
                if self._couples(moving.group):
                    torch._foreach_copy_(room, moving.gradients)
                    torch._foreach_add_(room, moving.origin, alpha=float(moving.group["weight_decay"]))
                    for owner, decayed in zip(moving.owners, room, strict=True):
                        owner.grad = shared_like(owner, decayed)  # where the displacement will be
                torch._foreach_zero_(moving.parameters)
            unit = {"lr": 1.0} | ({"weight_decay": 0.0} if "weight_decay" in self.base.defaults else {})
            with standing_in(self.base, owners, stand_ins), with_values(self.base, unit, lambda group: 1.0):
                self.base.step()
        except BaseException:
            self.back()
            raise
        finally:
            self.show_gradients()
        self._segments = [self._segment(moving, room) for moving, room in zip(self._moving, rooms, strict=True)]

    def _stand_ins(self, moving: Moving, room: list[Tensor]) -> list[Tensor]:
        """What the base steps in place of parameters in bfloat16 or float16: zeros, with a gradient."""
        torch._foreach_zero_(room)
        gradients = [gradient.float() for gradient in moving.gradients]
        if self._couples(moving.group):
            gradients = list(torch._foreach_add(gradients, moving.origin, alpha=float(moving.group["weight_decay"])))
        stand_ins = [shared_like(owner, zeros) for owner, zeros in zip(moving.owners, room, strict=True)]
        for owner, stand_in, gradient in zip(moving.owners, stand_ins, gradients, strict=True):
            stand_in.grad = shared_like(owner, gradient)
        return stand_ins

    def _segment(self, moving: Moving, room: list[Tensor]) -> Segment:
        if not moving.kind.rounded:
            torch._foreach_copy_(room, moving.parameters)
        terms = [(-1.0, room)]
        if moving.group.get("weight_decay") and not self._couples(moving.group):
            terms.append((float(moving.group["weight_decay"]), moving.origin))
        return Segment(moving, terms, self.scale(moving.group), at_origin=False)

    def _couples(self, group: Group) -> bool:
        """Whether the group's weight decay is part of the gradient."""
        decoupled = group.get("decoupled_weight_decay") or type(self.base) in DECOUPLED_BASES
        return bool(group.get("weight_decay")) and not decoupled

    def advance(self) -> None:
        """See `Scaled.advance`: `prepare` has done it."""
