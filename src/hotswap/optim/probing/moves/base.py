"""Candidate updates and the exact way back.

A move works for one step at a time:

    move.prepare()          save θ and this step's gradients
    move.to(arm)            put the parameters where that arm takes them, as often as there are trials
    move.expected(arm)      there, by how much the slope at θ lets one expect the loss to have fallen
    move.back()             or put them back to θ, bit for bit
    move.commit(arm)        let the base optimizer's state advance, exactly once; None if no arm is taken
    move.forget()           release this step's tensors

Candidates are always computed from the saved θ, never from one another: after a trial at a rate of 100, the difference
would be all rounding. Gradients are held here, so a closure may clear or overwrite `.grad` in a trial as it likes.

Of parameters in bfloat16 or float16, θ is kept in float32 from step to step; see `low_precision`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.arms import Arms, Value
from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim.probing.moves.finite import FiniteCheck
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION, MasterWeights
from hotswap.optim.probing.moves.shards import ORDINARY, local
from hotswap.optim.probing.moves.slope import SlopeSum

__all__ = ["NO_GRADIENTS", "Kind", "Move", "Moving", "ParamGroup", "Workspace", "refuse_sparse", "with_values"]

ParamGroup = dict[str, Any]
NO_GRADIENTS: Mapping[int, Tensor] = {}


class with_values:  # noqa: N801 (used as a function; made by `contextmanager`, it would take twice as long)
    """Inside, the base's parameter groups have `values` in place of the user's, with `lr` scaled by group."""

    def __init__(self, base: Optimizer, values: Mapping[str, Any], scale: Callable[[ParamGroup], float]) -> None:
        self._base, self._values, self._scale = base, values, scale
        self._saved: list[ParamGroup] = []

    def __enter__(self) -> None:
        values, groups, scale = self._values, self._base.param_groups, self._scale
        rates = [values["lr"] * scale(group) for group in groups] if "lr" in values else None
        for place, group in enumerate(groups):
            self._saved.append({name: group[name] for name in values if name in group})
            group.update(values)
            if rates is not None:
                group["lr"] = rates[place]

    def __exit__(self, *_: object) -> None:
        for group, own in zip(self._base.param_groups, self._saved, strict=True):
            group.update(own)


class Workspace:
    """One tensor like each parameter, kept from step to step so that no step allocates.

    If `widened`, the tensors of parameters in low precision are in float32.
    """

    def __init__(self, *, widened: bool = False) -> None:
        self._by_id: dict[int, Tensor] = {}
        self._widened = widened

    def like(self, owners: list[Tensor]) -> list[Tensor]:
        """A tensor for each of the parameters, with arbitrary content."""
        found = []
        for owner in owners:
            known = self._by_id.get(id(owner))
            parameter = owner if type(owner) in ORDINARY else local(owner)
            dtype = torch.float32 if self._widened and parameter.dtype in LOW_PRECISION else parameter.dtype
            fits = known is not None and known.is_same_size(parameter) and known.dtype is dtype
            if known is None or not fits or known.device != parameter.device:
                known = self._by_id[id(owner)] = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
            found.append(known)
        return found


class Kind(NamedTuple):
    """What decides how a parameter is moved."""

    low_precision: bool
    """The parameter is the rounding of a master weight in float32."""
    sparse: bool
    """Its gradient is sparse."""


class Moving(NamedTuple):
    """Parameters of one group and kind that have a gradient, their gradients, and their values before the step.

    Of sharded parameters, this process's part is moved; `owners` and `held` are the sharded tensors themselves.
    """

    group: ParamGroup
    scale: float
    """The group's rate in units of the arm's."""
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

    def select(self, places: Sequence[int]) -> Moving:
        """The parameters at these places."""

        def chosen(tensors: list[Tensor]) -> list[Tensor]:
            return [tensors[place] for place in places]

        return self._replace(
            owners=chosen(self.owners),
            held=chosen(self.held),
            parameters=chosen(self.parameters),
            gradients=chosen(self.gradients),
            origin=chosen(self.origin),
        )


@dataclass
class Move(ABC):
    """The candidate updates of a step."""

    base: Optimizer
    arms: Arms
    initial_lr: float
    agree: Callable[[bool], bool] | None = field(default=None, repr=False)
    """Whether something holds in all processes, for processes that have different parts of the gradients."""
    mean: Callable[[float], float] | None = field(default=None, repr=False)
    """The mean of a number over all processes; None where there is one."""
    elsewhere: frozenset[str] = frozenset()
    """Names of arms that are not the base's: others set them, and the same direction leads to all of their values."""
    masters: MasterWeights = field(default_factory=MasterWeights, repr=False)
    finite_unknown: bool = False
    """Whether `check_gradients` has something to find out."""
    _copies: Workspace = field(default_factory=Workspace, repr=False)
    _moving: list[Moving] = field(default_factory=list, repr=False)
    _finite: FiniteCheck = field(default_factory=FiniteCheck, repr=False)

    def scale(self, group: ParamGroup) -> float:
        """A parameter group's rate in units of the arm's: 1 in the first group until a scheduler changes it."""
        return float(group["lr"]) / self.initial_lr if "lr" in group else 1.0

    def base_values(self, arm: int) -> dict[str, Value]:
        """What an arm sets in the base optimizer, by name, before `lr` is scaled by group."""
        values = self.arms.values(arm)
        return {name: values[name] for name in values if name not in self.elsewhere} if self.elsewhere else values

    def prepare(self, unrounded: Mapping[int, Tensor] = NO_GRADIENTS) -> None:
        """Save θ and the gradients: those in `unrounded`, by the parameter's id, where `.grad` is rounded."""
        self._moving = []
        for group in self.base.param_groups:
            kinds: dict[tuple[bool, bool], tuple[list[Tensor], list[Tensor]]] = {}
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    key = parameter.dtype in LOW_PRECISION, gradient.layout is not torch.strided
                    owners, held = kinds.setdefault(key, ([], []))
                    owners.append(parameter)
                    held.append(gradient)
            scale = float(group["lr"]) / self.initial_lr if "lr" in group else 1.0
            for (low_precision, sparse), (owners, held) in kinds.items():
                found = held
                if low_precision:
                    found = [unrounded.get(id(p), g) for p, g in zip(owners, held, strict=True)]
                if sparse:
                    gradients = [gradient.coalesce() for gradient in found]
                else:
                    gradients = [g if type(g) in ORDINARY else local(g) for g in found]
                parameters = [p if type(p) in ORDINARY else local(p) for p in owners]
                origin = self._origin(low_precision, owners, parameters)
                kind = Kind(low_precision, sparse)
                self._moving.append(Moving(group, scale, kind, owners, held, parameters, gradients, origin))
        self.look_at_gradients()

    def _origin(self, low_precision: bool, owners: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
        if low_precision:
            return [self.masters.follow(owner) for owner in owners]
        origin = self._copies.like(owners)
        torch._foreach_copy_(origin, parameters)
        return origin

    @abstractmethod
    def to(self, arm: int) -> None:
        """Put the parameters where `arm` takes them."""

    @abstractmethod
    def expected(self, arm: int) -> float:
        """⟨g, θ − θ′⟩: by how much the loss would fall from θ to the candidate θ′ of `arm`, if it were linear.

        The parameters are at that candidate. g is the gradient as it was saved: clipped, and without weight decay.
        θ − θ′ is the whole step, in float32 where the parameters are in less. All processes get the same.
        """

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
        """Let the base optimizer's state advance by this step's gradient, and master weights go where `arm` takes them.

        The parameters stay where they are: at the arm's candidate, or back at θ for None.
        """

    def forget(self) -> None:
        """Put the gradients of the start point back and release this step's tensors; workspaces stay for the next."""
        self.show_gradients()
        self._moving, self.finite_unknown = [], False

    def _agreed(self, total: SlopeSum) -> float:
        """A sum over all parameters, as all processes see it.

        Replicas have equal sums; their mean is taken all the same, because a last digit in which two of them differ
        could let them take different decisions.
        """
        return total.value() if self.mean is None else self.mean(total.value())

    def show_gradients(self) -> None:
        """Put the gradients of the start point where they were found."""
        for moving in self._moving:
            for owner, gradient in zip(moving.owners, moving.held, strict=True):
                owner.grad = gradient

    def hide_gradients(self) -> None:
        """Clear `.grad`, so that a closure's own zero_grad and backward cannot change the gradients held here."""
        for moving in self._moving:
            for owner in moving.owners:
                owner.grad = None

    def refuse_infinite(self, parameters: list[Tensor]) -> None:
        """Raise where a gradient in `.grad` is not finite: before clipping, which would hide it."""
        found = [local(p.grad) for p in parameters if p.grad is not None]
        self._finite.ask([gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in found])
        self.finite_unknown = True
        self.check_gradients()

    def look_at_gradients(self) -> None:
        """Start to find out whether all gradients are finite, without waiting for the device."""
        gradients: list[Tensor] = []
        for moving in self._moving:
            gradients += (
                [gradient.values() for gradient in moving.gradients] if moving.kind.sparse else moving.gradients
            )
        self._finite.ask(gradients)
        self.finite_unknown = True

    def check_gradients(self) -> None:
        """Raise where a gradient is not finite: the parameters would become NaN, and the base's state for good."""
        if not self.finite_unknown:
            return
        self.finite_unknown = False
        finite = self._finite.answer()
        if not (finite if self.agree is None else self.agree(finite)):
            raise ClosureError(
                "The loss is finite but its gradient is not, so no step can be taken; nothing was changed. Look for a "
                "square root, a logarithm or a division at its edge, or skip this minibatch."
            )


def refuse_sparse(moving: Moving, *names: str) -> None:
    """Raise where a setting would move every row of a parameter whose sparse gradient has only a few."""
    for name in names:
        if moving.group.get(name):
            raise UnsupportedError(
                f"A parameter with a sparse gradient cannot have {name}={moving.group[name]:g}: it would move rows "
                f"that the gradient does not; put such parameters in a group with {name}=0, or use dense gradients."
            )
