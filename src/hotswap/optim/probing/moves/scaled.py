"""Moves along a direction that is the same for every rate: a trial costs a pass or two over the parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.optim.probing.moves.base import (
    NO_GRADIENTS,
    Kind,
    Move,
    Moving,
    ParamGroup,
    Workspace,
    refuse_sparse,
    with_values,
)
from hotswap.optim.probing.moves.low_precision import standing_in, widen
from hotswap.optim.probing.moves.shards import local, sharded_like
from hotswap.optim.probing.moves.slope import SlopeSum

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
DECOUPLED_BASES: frozenset[type[Optimizer]] = frozenset({torch.optim.Muon})  # weight decay is decoupled, without a flag
ORDINARY_KIND = Kind(low_precision=False, sparse=False)


@dataclass
class Segment:
    """The parameters of one group; `to` puts them at `origin − rate · scale · Σ weight · direction`."""

    moving: Moving
    terms: list[tuple[float, list[Tensor]]]
    at_origin: bool
    as_list: bool = field(init=False)

    def __post_init__(self) -> None:
        self.as_list = self.moving.parameters[0].is_cuda and _prefers_lists(self.moving.parameters)

    def settled(self, rate: float) -> list[tuple[Tensor, Tensor]]:
        """The master weights, and the values that they take."""
        rows = zip(self.moving.origin, *(directions for _, directions in self.terms), strict=True)
        return [(origin, self._candidate(rate, origin, list(directions))) for origin, *directions in rows]

    def _candidate(self, rate: float, origin: Tensor, directions: list[Tensor]) -> Tensor:
        """Where one parameter goes, in the precision of its origin."""
        for (weight, _), direction in zip(self.terms, directions, strict=True):
            origin = torch.add(origin, direction, alpha=-rate * self.moving.scale * weight)
        return origin

    def to(self, rate: float) -> None:
        """One fused pass over the parameters for each term, and one before it to return to the origin."""
        parameters = self.moving.parameters
        if self.moving.kind != ORDINARY_KIND:
            moved = zip(parameters, self.moving.origin, *(d for _, d in self.terms), strict=True)
            for parameter, origin, *directions in moved:
                parameter.copy_(self._candidate(rate, origin, directions))
            return
        terms = [(-rate * self.moving.scale * weight, directions) for weight, directions in self.terms]
        if self.at_origin:
            self.at_origin = False
        elif self.as_list:
            torch._foreach_copy_(parameters, self.moving.origin)
        else:
            (factor, directions), *terms = terms
            for target, start, direction in zip(parameters, self.moving.origin, directions, strict=True):
                torch.add(start, direction, alpha=factor, out=target)  # both passes in one
        for factor, directions in terms:
            torch._foreach_add_(parameters, directions, alpha=factor)

    def add_slope(self, total: SlopeSum) -> None:
        """Add ⟨g, scale · Σ weight · direction⟩: by how much the loss would fall at a rate of 1, if it were linear."""
        moving = self.moving
        for weight, directions in self.terms:
            for owner, gradient, direction in zip(moving.owners, moving.gradients, directions, strict=True):
                total.add(moving.scale * weight, owner, gradient, direction)


def _prefers_lists(tensors: list[Tensor]) -> bool:
    """On a GPU: whether two passes over a list beat one pass per tensor. Many small tensors are mostly launches."""
    return sum(tensor.numel() for tensor in tensors) < len(tensors) << 20


@dataclass
class Scaled(Move):
    """Moves along a direction that is the same for every rate: a trial costs a pass or two over the parameters."""

    _segments: list[Segment] = field(default_factory=list, repr=False)
    _slope: float | None = field(default=None, repr=False)
    """What is expected at a rate of 1, once this step was asked for it."""

    def rate(self, arm: int) -> float:
        """An arm's rate, its place in its row: all rows have the same."""
        rates = self.arms.axes[-1]
        return rates[arm % len(rates)]  # type: ignore[return-value]  # a rate is a float

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        rate = self.rate(arm)
        for segment in self._segments:
            segment.to(rate)

    def expected(self, arm: int) -> float:
        """See `Move.expected`: proportional to the rate, so one pass over the parameters is enough for a step."""
        if self._slope is None:
            total = SlopeSum()
            for segment in self._segments:
                segment.add_slope(total)
            self._slope = self._agreed(total)
        return self.arms.axes[0][arm] * self._slope  # type: ignore[operator]  # a rate is a float

    def commit(self, arm: int | None) -> None:
        """See `Move.commit`."""
        moved: list[tuple[Tensor, Tensor]] = []
        for segment in self._segments if arm is not None else ():
            if segment.moving.kind.low_precision:
                moved += segment.settled(self.rate(arm))  # type: ignore[arg-type]  # it is not None here
        self.advance()  # it reads θ and changes directions: after the values were computed, before they are written
        for origin, candidate in moved:
            origin.copy_(candidate)

    @abstractmethod
    def advance(self) -> None:
        """Let the base optimizer's state advance."""

    def forget(self) -> None:
        """See `Move.forget`."""
        super().forget()
        self._segments, self._slope = [], None


@dataclass
class GradientMove(Scaled):
    """torch's SGD: its direction is a sum of the gradient, θ and the momentum buffer, so θ is the only copy.

    With g′ = g + λθ the buffer becomes b′ = μb + (1 − τ)g′, on its first step b′ = g′, and the direction is g′ without
    momentum, b′ with it, g′ + μb′ with Nesterov's. The buffer itself changes in `commit`; it is in float32
    where the parameter is in bfloat16 or float16.
    """

    def prepare(self, unrounded: Mapping[int, Tensor] = NO_GRADIENTS) -> None:
        """See `Move.prepare`."""
        super().prepare(unrounded)
        for moving in self._moving:
            if moving.kind.sparse:
                refuse_sparse(moving, "weight_decay", "momentum")
            if moving.kind.low_precision:
                for owner in moving.owners:
                    widen(self.base.state.get(owner, {}))
        self._moving = [part for moving in self._moving for part in self._by_first_step(moving)]
        self._segments = [Segment(moving, self._terms(moving), at_origin=True) for moving in self._moving]

    def _by_first_step(self, moving: Moving) -> list[Moving]:
        """With momentum: the parameters that have a buffer, apart from those that take their first step."""
        if not moving.group["momentum"]:
            return [moving]
        known = [self._buffer(owner) is not None for owner in moving.owners]
        parts = ([place for place, has in enumerate(known) if has is wanted] for wanted in (True, False))
        return [moving.select(places) for places in parts if places]

    def _buffer(self, parameter: Tensor) -> Tensor | None:
        state = self.base.state.get(parameter)
        return state.get("momentum_buffer") if state else None

    def _buffers(self, moving: Moving) -> list[Tensor]:
        """The momentum buffers; none on their first step."""
        found = (self._buffer(owner) for owner in moving.owners)
        return [local(buffer) for buffer in found if buffer is not None]

    def _terms(self, moving: Moving) -> list[tuple[float, list[Tensor]]]:
        group, mu, fresh = moving.group, float(moving.group["momentum"]), 1.0
        buffers = self._buffers(moving) if mu else []
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
            group = moving.group
            if not group["momentum"]:
                continue
            buffers = self._buffers(moving)
            fresh = 1.0 - float(group["dampening"])
            if buffers:
                torch._foreach_mul_(buffers, float(group["momentum"]))
            else:
                for owner in moving.owners:
                    dtype = torch.float32 if moving.kind.low_precision else owner.dtype
                    self.base.state[owner]["momentum_buffer"] = torch.zeros_like(owner, dtype=dtype)
                buffers, fresh = self._buffers(moving), 1.0
            torch._foreach_add_(buffers, moving.gradients, alpha=fresh)
            if group["weight_decay"]:
                torch._foreach_add_(buffers, moving.origin, alpha=fresh * float(group["weight_decay"]))


@dataclass
class LinearMove(Scaled):
    """Any base whose step is linear in its rate: one step of it, from θ = 0, is the direction.

    From zero, because the difference of two nearby θ has few digits left when the step is small. Weight decay needs the
    real θ, so the base is not asked for it: a coupled one is added to the gradient before the step, a decoupled one to
    the displacement after it. Memory: θ and the displacement. The base's state advances in `prepare`, since to advance
    it after the search would take a copy of that state, too.

    In place of parameters in bfloat16 or float16 the base steps the tensors of their displacements, in float32.
    """

    _displacements: Workspace = field(default_factory=lambda: Workspace(widened=True), repr=False)

    def prepare(self, unrounded: Mapping[int, Tensor] = NO_GRADIENTS) -> None:
        """See `Move.prepare`."""
        super().prepare(unrounded)
        for moving in self._moving:
            if moving.kind.sparse:
                refuse_sparse(moving, "weight_decay")
        self.check_gradients()
        displacements = [self._displacements.like(moving.owners) for moving in self._moving]
        owners: list[Tensor] = []
        stand_ins: list[Tensor] = []
        try:
            for moving, displacement in zip(self._moving, displacements, strict=True):
                if moving.kind.low_precision:
                    owners += moving.owners
                    stand_ins += self._stand_ins(moving, displacement)
                    continue
                if self._couples(moving.group):
                    torch._foreach_copy_(displacement, moving.gradients)
                    torch._foreach_add_(displacement, moving.origin, alpha=float(moving.group["weight_decay"]))
                    for owner, decayed in zip(moving.owners, displacement, strict=True):
                        owner.grad = sharded_like(owner, decayed)  # where the displacement will be
                torch._foreach_zero_(moving.parameters)
            unit = {"lr": 1.0} | ({"weight_decay": 0.0} if "weight_decay" in self.base.defaults else {})
            with standing_in(self.base, owners, stand_ins), with_values(self.base, unit, lambda group: 1.0):
                self.base.step()
        except BaseException:
            self.back()
            raise
        finally:
            self.show_gradients()
        self._segments = list(map(self._segment, self._moving, displacements))

    def _stand_ins(self, moving: Moving, displacement: list[Tensor]) -> list[Tensor]:
        """What the base steps in place of parameters in bfloat16 or float16: zeros, with a gradient."""
        torch._foreach_zero_(displacement)
        gradients = [gradient.float() for gradient in moving.gradients]
        if self._couples(moving.group):
            gradients = list(torch._foreach_add(gradients, moving.origin, alpha=float(moving.group["weight_decay"])))
        stand_ins = [sharded_like(owner, zeros) for owner, zeros in zip(moving.owners, displacement, strict=True)]
        for owner, stand_in, gradient in zip(moving.owners, stand_ins, gradients, strict=True):
            stand_in.grad = sharded_like(owner, gradient)
        return stand_ins

    def _segment(self, moving: Moving, displacement: list[Tensor]) -> Segment:
        if not moving.kind.low_precision:
            torch._foreach_copy_(displacement, moving.parameters)
        terms = [(-1.0, displacement)]
        if moving.group.get("weight_decay") and not self._couples(moving.group):
            terms.append((float(moving.group["weight_decay"]), moving.origin))
        return Segment(moving, terms, at_origin=False)

    def _couples(self, group: ParamGroup) -> bool:
        """Whether the group's weight decay is part of the gradient."""
        decoupled = group.get("decoupled_weight_decay") or type(self.base) in DECOUPLED_BASES
        return bool(group.get("weight_decay")) and not decoupled

    def advance(self) -> None:
        """See `Scaled.advance`: `prepare` has done it."""
