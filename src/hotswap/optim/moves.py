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

There are three kinds, and `move_for` chooses: `GradientMove` for torch's SGD, `LinearMove` for other bases whose step
is linear in its rate, and `Exact` for all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from hotswap.arms import Arms, Value
from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim.gradients import FiniteCheck, values_of
from hotswap.optim.processes import ORDINARY, Agreement, local, pieces, sharded_like

__all__ = [
    "LINEAR_BASES",
    "REFUSED_BASES",
    "TORCHS_WRAPPER",
    "Exact",
    "GradientMove",
    "LinearMove",
    "Move",
    "move_for",
    "refuse_low_precision",
    "step_of_base",
    "with_values",
]

ParamGroup = dict[str, Any]

REFUSED_BASES: dict[type[Optimizer], str] = {
    torch.optim.LBFGS: "LBFGS evaluates the closure itself and searches along its own direction",
    torch.optim.Rprop: "Rprop reads lr on its first step only, so swapping it would change nothing",
    torch.optim.ASGD: "ASGD applies a rate one step after it was set, so a trial could not judge it",
}

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
LOW_PRECISION = (torch.bfloat16, torch.float16)

CHUNK = 1 << 24
"""The most numbers that are copied to float64 at a time: 128 MiB."""


def move_for(
    base: Optimizer,
    arms: Arms,
    initial_lr: float,
    linear: bool | None,
    agreement: Agreement,
    elsewhere: frozenset[str] = frozenset(),
) -> Move:
    """The cheapest move that is exact for this base and these arms; those named in `elsewhere` do not move anything."""
    for refused, reason in REFUSED_BASES.items():
        if isinstance(base, refused):
            raise UnsupportedError(f"HotSwap cannot wrap {type(base).__name__}: {reason}.")
    kind: type[Move] = Exact
    if set(arms.names) - elsewhere == {"lr"} and linear is not False:
        if type(base) is torch.optim.SGD:
            kind = GradientMove
        elif linear or type(base) in LINEAR_BASES:
            kind = LinearMove
    return kind(base, arms, initial_lr, agreement, elsewhere)


# --- the base optimizer's own step ------------------------------------------------------------------------------------

TORCHS_WRAPPER = Optimizer.profile_hook_step(lambda: None).__code__
"""The code of a step that torch has wrapped, and that nobody has wrapped once more."""


def step_of_base(base: Optimizer) -> bool:
    """Let the base take a step: as torch calls it, unless it would find no hook to run.

    torch wraps the `step` of every class of optimizers: hooks run, and the step is marked for the profiler. A
    hot-swapped step has that wrapper already. Around the base's it takes as long as the bandit does.
    """
    step = type(base).step
    replaced = "step" in vars(base) or getattr(step, "__code__", None) is not TORCHS_WRAPPER
    own_hooks = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
    if replaced or own_hooks or _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        return base.step() is None or True  # in one line: nothing comes between the step and the answer
    return step.__wrapped__(base) is None or True  # type: ignore[attr-defined]  # torch's wrapper has it


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


# --- parameters that move ---------------------------------------------------------------------------------------------


@dataclass
class Moving:
    """Parameters of one group that have a gradient, their gradients, and their values before the step.

    Of sharded parameters, this process's part is moved; `owners` and `held` are the sharded tensors themselves.
    """

    group: ParamGroup
    scale: float
    """The group's rate in units of the arm's."""
    sparse: bool
    owners: list[Tensor] = field(default_factory=list)
    held: list[Tensor] = field(default_factory=list)
    """The gradients as they were found."""
    parameters: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    origin: list[Tensor] = field(default_factory=list)
    terms: list[tuple[float, list[Tensor]]] = field(default_factory=list)
    """The direction, as a sum of weighted tensors."""
    at_origin: bool = False
    lists: bool | None = None
    """See `_prefers_lists`; None until it is asked for."""

    def refuse_sparse(self, *names: str) -> None:
        """Raise where a setting would move every row of a parameter whose sparse gradient has only a few."""
        for name in names:
            if self.group.get(name):
                raise UnsupportedError(
                    f"A parameter with a sparse gradient cannot have {name}={self.group[name]:g}: it would move rows "
                    f"that the gradient does not; put such parameters in a group with {name}=0, or use dense gradients."
                )


def refuse_low_precision(parameters: Iterable[Tensor]) -> None:
    """Raise where the rounding of a parameter would swallow the steps of a search."""
    for parameter in parameters:
        if parameter.dtype in LOW_PRECISION:
            raise UnsupportedError(
                f"A parameter is in {str(parameter.dtype).removeprefix('torch.')}, whose rounding swallows most steps "
                "of a search; keep the parameters in float32, model.float(), and compute in low precision inside of "
                "torch.autocast."
            )


Row = tuple[float, Tensor, Tensor, Tensor]
"""A factor, a parameter, its gradient and a vector like it."""


def slope(rows: Iterable[Row]) -> float:
    """The sum of `factor · ⟨gradient, vector⟩` over parameters; NaN or infinite where a part is.

    Products and sums are in float64, where those of float32 neither overflow nor vanish. The device is read once for
    all parameters on it. Of a parameter that is divided among processes only this process's part is here. It counts as
    often as there are different parts, and one that is not divided counts once: the mean over all processes is the
    whole sum. A gradient may be sparse, if it is coalesced; and the vector then, too.
    """
    products: dict[torch.device, list[tuple[float, Tensor]]] = {}
    for factor, owner, gradient, vector in rows:
        product = _product(gradient, vector)
        products.setdefault(product.device, []).append((factor * pieces(owner), product))
    total = 0.0
    for parts in products.values():
        found = torch.stack([product for _, product in parts]).tolist()
        total += sum(factor * product for (factor, _), product in zip(parts, found, strict=True))
    return total


def _product(gradient: Tensor, vector: Tensor) -> Tensor:
    """⟨g, v⟩ in float64, as a tensor of one number on the device."""
    if gradient.is_sparse:
        rows = tuple(gradient.indices())
        vector = vector.values() if vector.is_sparse else vector[rows]  # a sparse vector is the gradient itself
        gradient = gradient.values()
    if gradient.is_complex():  # real and imaginary parts are numbers of their own
        gradient, vector = torch.view_as_real(gradient.resolve_conj()), torch.view_as_real(vector.resolve_conj())
    if gradient.device.type == "mps":  # has no float64
        gradient, vector = gradient.cpu(), vector.cpu()
    if gradient.numel() <= CHUNK:
        return gradient.to(torch.float64, copy=True).mul_(vector).sum()
    parts = zip(torch.split(gradient.reshape(-1), CHUNK), torch.split(vector.reshape(-1), CHUNK), strict=True)
    return torch.stack([part.to(torch.float64, copy=True).mul_(other).sum() for part, other in parts]).sum()


def kept_like(known: dict[int, Tensor], moving: Moving) -> list[Tensor]:
    """A tensor like each of the parameters, with arbitrary content. Steps share them, so that no step allocates.

    `known` has them by the ids of the parameters.
    """
    found = []
    for owner, parameter in zip(moving.owners, moving.parameters, strict=True):
        kept = known.get(id(owner))
        fits = kept is not None and kept.is_same_size(parameter) and kept.dtype is parameter.dtype
        if kept is None or not fits or kept.device != parameter.device:
            kept = known[id(owner)] = torch.empty_like(parameter, requires_grad=False)
        found.append(kept)
    return found


# --- the three kinds of moves -----------------------------------------------------------------------------------------


class Move(ABC):
    """The candidate updates of a step."""

    def __init__(
        self,
        base: Optimizer,
        arms: Arms,
        initial_lr: float,
        agreement: Agreement,
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        self.base, self.arms, self.initial_lr, self.agreement = base, arms, initial_lr, agreement
        self.elsewhere = elsewhere
        """Names of arms that are not the base's: others set them, and one direction leads to all of their values."""
        self.finite_unknown = False
        """Whether `check_gradients` has yet to find out if the gradients are finite."""
        self._copies: dict[int, Tensor] = {}
        self._moving: list[Moving] = []
        self._finite = FiniteCheck()
        self._displacements: dict[int, Tensor] = {}
        self._slope: float | None = None
        """The decrease that is expected at a rate of 1, once this step was asked for it."""

    def scale(self, group: ParamGroup) -> float:
        """A parameter group's rate in units of the arm's: 1 in the first group until a scheduler changes it."""
        return float(group["lr"]) / self.initial_lr if "lr" in group else 1.0

    def base_values(self, arm: int) -> dict[str, Value]:
        """The values that an arm sets in the base optimizer, by name, before `lr` is scaled by group."""
        values = self.arms.values(arm)
        return {name: values[name] for name in values if name not in self.elsewhere} if self.elsewhere else values

    @abstractmethod
    def prepare(self) -> None:
        """Save θ and the gradients."""

    def _collect(self) -> None:
        """Save θ and the gradients, and start to find out whether all gradients are finite."""
        self._moving = []
        gradients: list[Tensor] = []
        for group in self.base.param_groups:
            kinds: dict[tuple[bool, bool], Moving] = {}
            apart = self._apart(group)
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    if parameter.dtype in LOW_PRECISION:  # converted after construction
                        refuse_low_precision([parameter])
                    sparse = gradient.layout is not torch.strided
                    kind = sparse, id(parameter) in apart
                    if kind not in kinds:
                        kinds[kind] = Moving(group, self.scale(group), sparse)
                    moving = kinds[kind]
                    moving.owners.append(parameter)
                    moving.held.append(gradient)
                    moving.parameters.append(parameter if type(parameter) in ORDINARY else local(parameter))
                    if sparse:
                        gradient = gradient.coalesce()
                    moving.gradients.append(gradient if type(gradient) in ORDINARY else local(gradient))
            for (sparse, _), moving in kinds.items():
                moving.origin = kept_like(self._copies, moving)
                torch._foreach_copy_(moving.origin, moving.parameters)
                gradients += [gradient.values() for gradient in moving.gradients] if sparse else moving.gradients
            self._moving += kinds.values()
        self._finite.ask(gradients)
        self.finite_unknown = True

    def _apart(self, group: ParamGroup) -> Collection[int]:
        """The ids of parameters of a group that do not move as the others do."""
        return ()

    @abstractmethod
    def to(self, arm: int) -> None:
        """Put the parameters where `arm` takes them."""

    @abstractmethod
    def expected(self, arm: int) -> float:
        """⟨g, θ − θ′⟩: by how much the loss would fall from θ to the candidate θ′ of `arm`, if it were linear.

        The parameters are at that candidate. g is the gradient as it was saved: clipped, and without weight decay.
        All processes get the same: replicas have equal sums, and their mean is taken all the same, because a last digit
        in which two of them differ could let them take different decisions.
        """

    def back(self) -> None:
        """Put the parameters back to the saved θ, bit for bit."""
        for moving in self._moving:
            torch._foreach_copy_(moving.parameters, moving.origin)

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
        """Let the base optimizer's state advance by this step's gradient.

        The parameters stay where they are: at the arm's candidate, or back at θ for None.
        """

    def forget(self) -> None:
        """Put the gradients of the start point back and release this step's tensors; workspaces stay for the next."""
        self.show_gradients()
        self._moving, self.finite_unknown, self._slope = [], False, None

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
        self._finite.ask([values_of(p.grad) for p in parameters if p.grad is not None])
        self.finite_unknown = True
        self.check_gradients()

    def check_gradients(self) -> None:
        """Raise where a gradient is not finite: the parameters would become NaN, and the base's state for good."""
        if not self.finite_unknown:
            return
        self.finite_unknown = False
        finite = self._finite.answer()
        if self.agreement.several:  # gradients are the same in all processes, unless they are sharded
            owners = [parameter for group in self.base.param_groups for parameter in group["params"]]
            if any(local(owner) is not owner for owner in owners):
                finite = self.agreement.all(finite)
        if not finite:
            raise ClosureError(
                "The loss is finite but its gradient is not, so no step can be taken; nothing was changed. Look for a "
                "square root, a logarithm or a division at its edge, or skip this minibatch."
            )


class Scaled(Move):
    """Moves along a direction that is the same for every rate: a trial costs a pass or two over the parameters."""

    def to(self, arm: int) -> None:
        """See `Move.to`: `origin − rate · scale · Σ weight · direction`.

        That is one fused pass over the parameters for each term, and one before it to return to the origin.
        """
        rates = self.arms.axes[-1]  # all rows have the same
        rate: Any = rates[arm % len(rates)]
        for moving in self._moving:
            factor, parameters, terms = -rate * moving.scale, moving.parameters, moving.terms
            if moving.lists is None:
                moving.lists = moving.sparse or _prefers_lists(parameters)
            if moving.at_origin:
                moving.at_origin = False
            elif moving.lists:
                torch._foreach_copy_(parameters, moving.origin)
            else:
                weight, directions = terms[0]
                for target, start, direction in zip(parameters, moving.origin, directions, strict=True):
                    torch.add(start, direction, alpha=factor * weight, out=target)  # both passes in one
                terms = terms[1:]
            for weight, directions in terms:
                if moving.sparse:
                    for parameter, direction in zip(parameters, directions, strict=True):
                        parameter.add_(direction, alpha=factor * weight)
                else:
                    torch._foreach_add_(parameters, directions, alpha=factor * weight)

    def expected(self, arm: int) -> float:
        """See `Move.expected`: proportional to the rate, so one pass over the parameters is enough for a step."""
        if self._slope is None:
            rows = (
                (moving.scale * weight, *row)
                for moving in self._moving
                for weight, directions in moving.terms
                for row in zip(moving.owners, moving.gradients, directions, strict=True)
            )
            self._slope = self.agreement.mean(slope(rows))
        rates = self.arms.axes[-1]
        return rates[arm % len(rates)] * self._slope  # type: ignore[operator]  # a rate is a float


def _prefers_lists(parameters: list[Tensor]) -> bool:
    """On a GPU: whether two passes over a list beat one pass per tensor. Many small tensors are mostly launches."""
    return parameters[0].is_cuda and sum(tensor.numel() for tensor in parameters) < len(parameters) << 20


class GradientMove(Scaled):
    """torch's SGD: its direction is a sum of the gradient, θ and the momentum buffer, so θ is the only copy.

    With g′ = g + λθ the buffer becomes b′ = μb + (1 − τ)g′, on its first step b′ = g′, and the direction is g′ without
    momentum, b′ with it, g′ + μb′ with Nesterov's. The buffer itself changes in `commit`.
    """

    def prepare(self) -> None:
        """See `Move.prepare`."""
        self._collect()
        for moving in self._moving:
            if moving.sparse:
                moving.refuse_sparse("weight_decay", "momentum")
            moving.terms, moving.at_origin = self._terms(moving), True

    def _apart(self, group: ParamGroup) -> Collection[int]:
        """See `Move._apart`: those that take their first step with momentum."""
        if not group["momentum"]:
            return ()
        return {id(parameter) for parameter in group["params"] if self._buffer(parameter) is None}

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

    def commit(self, arm: int | None) -> None:
        """See `Move.commit`."""
        for moving in self._moving:
            group = moving.group
            if not group["momentum"]:
                continue
            buffers, fresh = self._buffers(moving), 1.0 - float(group["dampening"])
            if buffers:
                torch._foreach_mul_(buffers, float(group["momentum"]))
            else:
                for owner in moving.owners:
                    self.base.state[owner]["momentum_buffer"] = torch.zeros_like(owner)
                buffers, fresh = self._buffers(moving), 1.0
            torch._foreach_add_(buffers, moving.gradients, alpha=fresh)
            if group["weight_decay"]:
                torch._foreach_add_(buffers, moving.origin, alpha=fresh * float(group["weight_decay"]))


class LinearMove(Scaled):
    """Any base whose step is linear in its rate: one step of it, from θ = 0, is the direction.

    From zero, because the difference of two nearby θ has few digits left when the step is small. Weight decay needs the
    real θ, so the base is not asked for it: a coupled one is added to the gradient before the step, a decoupled one to
    the displacement after it. Memory: θ and the displacement. The base's state advances in `prepare`, since to advance
    it after the search would take a copy of that state, too.
    """

    def prepare(self) -> None:
        """See `Move.prepare`."""
        self._collect()
        for moving in self._moving:
            if moving.sparse:
                moving.refuse_sparse("weight_decay")
        self.check_gradients()
        displacements = [kept_like(self._displacements, moving) for moving in self._moving]
        try:
            for moving, displacement in zip(self._moving, displacements, strict=True):
                if self._couples(moving.group):
                    torch._foreach_copy_(displacement, moving.gradients)
                    torch._foreach_add_(displacement, moving.origin, alpha=float(moving.group["weight_decay"]))
                    for owner, decayed in zip(moving.owners, displacement, strict=True):
                        owner.grad = sharded_like(owner, decayed)  # the displacement's memory
                torch._foreach_zero_(moving.parameters)
            unit = {"lr": 1.0} | ({"weight_decay": 0.0} if "weight_decay" in self.base.defaults else {})
            with with_values(self.base, unit, lambda group: 1.0):
                step_of_base(self.base)
        except BaseException:
            self.back()
            raise
        finally:
            self.show_gradients()
        for moving, displacement in zip(self._moving, displacements, strict=True):
            torch._foreach_copy_(displacement, moving.parameters)
            moving.terms = [(-1.0, displacement)]
            if moving.group.get("weight_decay") and not self._couples(moving.group):
                moving.terms.append((float(moving.group["weight_decay"]), moving.origin))

    def _couples(self, group: ParamGroup) -> bool:
        """Whether the group's weight decay is part of the gradient."""
        decoupled = group.get("decoupled_weight_decay") or type(self.base) in DECOUPLED_BASES
        return bool(group.get("weight_decay")) and not decoupled

    def commit(self, arm: int | None) -> None:
        """See `Move.commit`: `prepare` has done it."""


class Exact(Move):
    """For every trial, restore parameters and state, set the arm's values, and let the base step.

    Slower than the other moves, and it keeps a copy of the base's state.
    """

    _state: Mapping[Any, Any] = {}
    _groups: tuple[ParamGroup, ...] = ()
    _attributes: Mapping[str, Any] = {}
    """Numbers, and containers of numbers, that are attributes of the base itself: some count their steps there."""
    _advanced: bool = False

    def prepare(self) -> None:
        """See `Move.prepare`."""
        self._collect()
        self.check_gradients()
        self._state = {key: _copied(entry) for key, entry in self.base.state.items()}
        groups = self.base.param_groups
        self._groups = tuple(_copied({k: v for k, v in group.items() if k != "params"}) for group in groups)
        numbers = {name: value for name, value in vars(self.base).items() if _counts(value)}
        self._attributes = _copied(numbers)
        self._advanced = False

    def to(self, arm: int) -> None:
        """See `Move.to`."""
        self.back()
        for moving in self._moving:
            for owner, gradient in zip(moving.owners, moving.held, strict=True):
                owner.grad = gradient.clone()  # a base may write into it
        self._advanced = True  # set before: the step may raise when it has changed something
        with with_values(self.base, self.base_values(arm), self.scale):
            step_of_base(self.base)
        self.hide_gradients()

    def expected(self, arm: int) -> float:
        """See `Move.expected`: from the parameters, which are at the candidate."""
        rows = (
            (1.0, owner, gradient, origin - parameter)
            for moving in self._moving
            for owner, gradient, origin, parameter in zip(
                moving.owners, moving.gradients, moving.origin, moving.parameters, strict=True
            )
        )
        return self.agreement.mean(slope(rows))

    def back(self) -> None:
        """See `Move.back`; the base's state goes back too."""
        super().back()
        if self._advanced:
            self.base.state.clear()
            self.base.state.update({key: _copied(entry) for key, entry in self._state.items()})
            for group, saved in zip(self.base.param_groups, self._groups, strict=True):
                _restore(group, saved)  # some optimizers count their steps in the group
            own = vars(self.base)
            own.update({name: _in_place(own.get(name), value) for name, value in _copied(self._attributes).items()})
            self._advanced = False

    def commit(self, arm: int | None) -> None:
        """See `Move.commit`: the step to the last candidate has done it; otherwise a step whose move is undone does."""
        if not self._advanced:
            self.to(len(self.arms) - 1)
            super().back()

    def forget(self) -> None:
        """See `Move.forget`."""
        super().forget()
        self._state, self._groups, self._attributes, self._advanced = {}, (), {}, False


def _counts(value: Any) -> bool:
    """Whether an attribute of a base can be a count of its own: a number, or a container of numbers alone."""
    if type(value) in (dict, list, tuple):  # torch's own are of other types, or have parameters
        return all(map(_counts, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float | Tensor) and not isinstance(value, torch.nn.Parameter)


def _copied(entry: Any) -> Any:
    """A copy of an entry of a state: the dictionary of a parameter, or whatever else an optimizer keeps."""
    if isinstance(entry, Tensor):
        return entry.detach().clone()
    return {name: _copied(value) for name, value in entry.items()} if isinstance(entry, dict) else deepcopy(entry)


def _in_place(there: Any, saved: Any) -> Any:
    """A saved value; where that is a container, in the one that is there: others may hold a reference to it."""
    if type(there) is not type(saved) or not isinstance(saved, dict | list):
        return saved
    there.clear()
    fill = there.update if isinstance(there, dict) else there.extend
    fill(saved)
    return there


def _restore(group: ParamGroup, saved: ParamGroup) -> None:
    """Restore a group's values. A tensor is written to, not replaced: others may hold a reference to it.

    A value that was not there before is taken out again: some optimizers begin to count their steps there in the first.
    """
    for name in [name for name in group if name not in saved and name != "params"]:
        del group[name]
    for name, value in saved.items():
        if isinstance(value, Tensor) and isinstance(group.get(name), Tensor):
            group[name].copy_(value)
        else:
            group[name] = deepcopy(value)
