"""Whether one of torch's optimizers can step with a state, tried on tiny tensors: who is to know better what it needs?

Each parameter has a tiny tensor in its place, with as many axes, each as long as another prime number. So the shapes
of what a fresh optimizer keeps of the tiny tensor say which shapes it keeps of the parameter.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from hotswap.optim.loading.values import is_number, said
from hotswap.optim.probing.base_step import TORCHS_WRAPPER
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION

__all__ = ["Form", "Unlike", "fresh_forms", "is_torchs", "try_state"]

PRIMES = (2, 3, 5, 7, 11, 13)
GRADIENT = 0.01


class Unlike(Exception):  # noqa: N818 (an answer, not a failure)
    """The optimizer cannot step with these values; the message is what it says to them."""


@dataclass(frozen=True)
class Form:
    """What a fresh optimizer keeps under a name of one parameter."""

    scalar: bool
    shape: tuple[int, ...] | None
    """Of the tensor; None where the shape of the tiny one does not tell."""
    floating: bool
    tiny: Any
    """The same of the tiny tensor."""


def is_torchs(base: Optimizer) -> bool:
    """Whether it is one of torch's own optimizers, and no subclass of one."""
    return getattr(torch.optim, type(base).__name__, None) is type(base)


def fresh_forms(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Form]] | None:
    """What the base keeps of each parameter after a first step with these values of its groups.

    None where that cannot be known: the optimizer is not torch's own, or takes other steps than with dense gradients.

    Raises:
        Unlike: It cannot step with these values, but with its own.
    """
    own = base.param_groups[: len(groups)]
    if not is_torchs(base) or any(parameter.is_meta for group in own for parameter in group["params"]):
        return None
    try:
        twin = _stepped(base, groups)
    except Exception as error:
        try:
            _stepped(base, [{name: value for name, value in group.items() if name != "params"} for group in own])
        except Exception:
            return None
        raise Unlike(said(error)) from error
    tiny = [parameter for group in twin.param_groups for parameter in group["params"]]
    owners = [parameter for group in own for parameter in group["params"]]
    return [
        {name: _form(value, owner) for name, value in twin.state.get(small, {}).items()}
        for small, owner in zip(tiny, owners, strict=True)
    ]


def try_state(
    base: Optimizer,
    groups: Sequence[Mapping[str, Any]],
    states: Mapping[int, Mapping[str, Any]],
    forms: Sequence[Mapping[str, Form]],
) -> None:
    """Load a state of the same kind for tiny tensors, with the same single numbers, and take a step.

    Raises:
        Unlike: It does not load, or the step raises, or leads to what is not a number.
    """
    try:
        with _quiet():
            twin = _twin(base, groups)
            tiny = [parameter for group in twin.param_groups for parameter in group["params"]]
            kept = {
                place: {name: _small(value, forms[place].get(name), tiny[place]) for name, value in values.items()}
                for place, values in states.items()
            }
            twin.load_state_dict({**twin.state_dict(), "state": kept})
            _step(twin)
    except Exception as error:
        raise Unlike(said(error)) from error
    if any(bool(parameter.isnan().any()) for parameter in tiny):
        raise Unlike("a step leads to what is not a number")


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def _stepped(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> Optimizer:
    with _quiet():
        twin = _twin(base, groups)
        _step(twin)
    return twin


def _twin(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> Optimizer:
    """An optimizer of the same class over tiny tensors, with these values; its constructor looks at all of them."""
    kind: Any = type(base)
    takes = inspect.signature(kind).parameters
    tiny = [[_tiny(parameter) for parameter in group["params"]] for group in base.param_groups[: len(groups)]]
    for parameters, group in zip(tiny, groups, strict=True):
        if parameters:
            kind(parameters, **{name: value for name, value in group.items() if name in takes and name != "params"})
    settings = {name: value for name, value in base.defaults.items() if name in takes}
    twin: Optimizer = kind([{"params": parameters} for parameters in tiny], **settings)
    for own, group in zip(twin.param_groups, groups, strict=True):
        dropped = set(own) - set(group) - {"params"}
        own.update({name: value for name, value in group.items() if name != "params"})
        for name in dropped:
            del own[name]
    twin.__setstate__({"param_groups": twin.param_groups})  # with names of later versions
    return twin


def _tiny(parameter: Tensor) -> Tensor:
    shape = () if is_lazy(parameter) else PRIMES[: parameter.dim()]
    kind = torch.float32 if parameter.dtype in LOW_PRECISION else parameter.dtype
    return torch.ones(shape, dtype=kind, device=parameter.device, requires_grad=True)


def _step(twin: Optimizer) -> None:
    for group in twin.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.full_like(parameter, GRADIENT)
    step: Any = type(twin).step
    if getattr(step, "__code__", None) is TORCHS_WRAPPER:
        step.__wrapped__(twin)  # hooks for all optimizers are not to hear of it
    else:
        twin.step()


def _form(tiny: Any, owner: Tensor) -> Form:
    if not isinstance(tiny, Tensor):
        return Form(is_number(tiny), None, floating=True, tiny=tiny)
    axes = {1: 1} | ({} if is_lazy(owner) else dict(zip(PRIMES, owner.shape, strict=False)))
    known = not is_lazy(owner) and owner.dim() <= len(PRIMES) and all(size in axes for size in tiny.shape)
    shape = tuple(axes[size] for size in tiny.shape) if known else None
    return Form(tiny.dim() == 0, shape, tiny.is_floating_point(), tiny)


def _small(value: Any, form: Form | None, tiny: Tensor) -> Any:
    """A value as the tiny tensor would have it: a single number stays what it is."""
    if not isinstance(value, Tensor) or (value.dim() == 0 and (form is None or form.scalar)):
        return value.detach().clone() if isinstance(value, Tensor) else value
    if form is not None and isinstance(form.tiny, Tensor):
        return form.tiny.detach().clone()
    return torch.zeros(() if value.numel() == 1 and math.prod(tiny.shape) != 1 else tiny.shape)
