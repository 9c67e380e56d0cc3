"""The checks of a checkpoint: of values in it, and of the base optimizer's parameter groups and state.

All of it is checked before anything of it is loaded, and nothing is changed. A damage is one sentence, a
`hotswap.CheckpointError`.

Whether one of torch's optimizers can step with a state is tried on tiny tensors: nobody knows better what it needs.
Each parameter has a tiny tensor in its place, with as many axes, each as long as another prime number. So the shapes of
what a fresh optimizer keeps of the tiny tensor say which shapes it keeps of the parameter.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from reprlib import repr as shortened
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from hotswap.errors import CheckpointError, HotSwapError
from hotswap.optim.moves import LOW_PRECISION, TORCHS_WRAPPER
from hotswap.optim.processes import local
from hotswap.optim.validation import check_group

__all__ = ["check_list", "check_number", "check_saved_base", "check_table", "check_tensor", "refuse", "said"]

NOT_NEGATIVE = {
    *("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta", "sum", "exp_inf", "step_size"),
    *("variance", "row_var", "col_var"),
}
"""Names in the state of torch's own optimizers: sums of squares, sizes and counts."""

MOST = torch.finfo(torch.float32).max
"""The largest single number that can be kept: it becomes a tensor."""

PRIMES = (2, 3, 5, 7, 11, 13)


# --- numbers, lists, tables and tensors -------------------------------------------------------------------------------


def refuse(where: str, rule: str) -> NoReturn:
    """Raise the sentence that something in the checkpoint must be something else."""
    raise CheckpointError(f"The checkpoint is damaged: {where} must be {rule}. Nothing was changed; load another one.")


def said(error: Exception) -> str:
    """The message of an error, in one line and not for long."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text[:200]}"


def is_number(value: object) -> bool:
    """Whether a value is a real number, or a tensor that holds one number. True and False are no numbers."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dtype != torch.bool and not value.is_complex() and not value.is_meta
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_number(
    value: Any,
    where: str,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    finite: bool = True,
    whole: bool = False,
) -> None:
    """A number between two others, both included, and finite unless that is not asked for; NaN is never one."""
    words = f"{'a whole' if whole else 'a finite' if finite else 'a'} number"
    if math.isfinite(least) and math.isfinite(most):
        words += f" from {least:g} to {most:g}"
    elif math.isfinite(least):
        words += f" of at least {least:g}"
    too_large = isinstance(value, int) and abs(value) >= 2**63  # for a tensor
    number = float(value) if is_number(value) and not too_large else math.nan
    right_kind = not whole or isinstance(value, int)
    if not right_kind or not least <= number <= most or (finite and not math.isfinite(number)):
        plain = is_number(value) or isinstance(value, str | bool | None)
        refuse(where, f"{words}, not {shortened(value) if plain else f'of type {type(value).__name__}'}")


def check_table(value: object, where: str) -> Mapping[Any, Any]:
    """A dictionary."""
    if not isinstance(value, Mapping):
        refuse(where, f"a dictionary, not of type {type(value).__name__}")
    return value


def check_list(value: object, where: str, length: int | None = None) -> list[Any]:
    """A list or tuple, of so many items where that is known."""
    if not isinstance(value, list | tuple):
        refuse(where, f"a list, not of type {type(value).__name__}")
    if length is not None and len(value) != length:
        refuse(where, f"a list of {length}, not of {len(value)}")
    return list(value)


def check_tensor(
    value: object, where: str, shape: tuple[int, ...] | None = None, *, floating: bool | None = None
) -> Tensor:
    """A tensor of real numbers that are there, of a shape and of floating numbers or whole ones where that is known."""
    if not isinstance(value, Tensor):
        refuse(where, f"a tensor, not of type {type(value).__name__}")
    if value.is_meta or value.layout is not torch.strided or value.is_quantized or value.is_complex():
        refuse(where, "an ordinary tensor of real numbers")
    if shape is not None and tuple(value.shape) != shape:
        refuse(where, f"of the shape {shape}, as this model has it, not {tuple(value.shape)}")
    if floating is not None and (value.dtype == torch.bool or value.is_floating_point() != floating):
        refuse(where, f"of {'floating' if floating else 'whole'} numbers, not {value.dtype}")
    return local(value)


# --- the base's parameter groups and state ----------------------------------------------------------------------------


def check_saved_base(base: Optimizer, saved: Mapping[str, Any]) -> None:
    """Check what `base.load_state_dict` is to load.

    Raises:
        CheckpointError: It is not the state of such an optimizer with such parameters.
    """
    groups, own = saved["param_groups"], base.param_groups
    if len(groups) != len(own):
        raise CheckpointError(
            f"The checkpoint is of other parameters: it has {_count(len(groups), 'parameter group')}, this optimizer "
            f"{len(own)}; construct the optimizer as it was when it was saved."
        )
    places: list[Any] = []
    for number, (group, now) in enumerate(zip(groups, own, strict=True)):
        params = group.get("params")
        if not isinstance(params, list | tuple) or not all(_is_key(place) for place in params):
            refuse(f"params of parameter group {number}", "a list of the numbers of parameters")
        if len(params) != len(now["params"]):
            raise CheckpointError(
                f"The checkpoint is of other parameters: parameter group {number} has "
                f"{_count(len(params), 'parameter')}, that of this optimizer {len(now['params'])}; construct the "
                "optimizer as it was when it was saved."
            )
        places += params
    if len(set(places)) < len(places):
        refuse("params of the parameter groups", "different numbers")
    states, known = check_table(saved.get("state"), "state"), set(places)
    if not _is_torchs(base):  # some optimizers of others have entries of no parameter, by words
        known |= {key for key in states if isinstance(key, str)}
    if strange := [key for key in states if not _is_key(key) or key not in known]:
        refuse("state", f"by the numbers of the parameters, which {strange[0]!r} is none of")
    _check_values(
        base,
        [{name: value for name, value in group.items() if name != "params"} for group in groups],
        {place: states[key] for place, key in enumerate(places) if key in states},
    )


def _is_key(key: object) -> bool:
    return isinstance(key, int | str) and not isinstance(key, bool)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _check_values(base: Optimizer, groups: Sequence[Any], states: Mapping[int, Any]) -> None:
    """Check the values of parameter groups, and the state of parameters by their place in all groups."""
    for number, (group, now) in enumerate(zip(groups, base.param_groups, strict=True)):
        _check_group(group, {**now, **base.defaults}, f"group {number} of the base optimizer")
    owners = [parameter for group in base.param_groups for parameter in group["params"]]
    try:
        forms = _fresh_forms(base, groups)
        for place, values in states.items():
            where = f"the state of parameter {place} of the base optimizer"
            now = base.state.get(owners[place], {})
            form = None if forms is None else forms[place]
            _check_state(check_table(values, where), owners[place], now, form, where)
        if forms is not None:
            _try_state(base, groups, states, forms)
    except Unlike as error:
        raise CheckpointError(
            f"The checkpoint is damaged, or of another base optimizer: {type(base).__name__} cannot step with the "
            f"groups and the state of the base optimizer ({error}). Nothing was changed; construct the optimizer "
            "around the same base."
        ) from error


def _check_group(group: Mapping[Any, Any], now: Mapping[str, Any], where: str) -> None:
    for name, value in group.items():
        if not isinstance(name, str):
            refuse(f"{where}", "a dictionary by name")
        if name in now:
            _check_like(value, now[name], f"{name} of {where}")
        elif not (isinstance(value, Tensor) or _is_plain(value)):
            refuse(f"{name} of {where}", "a tensor or a plain value")
    for name in {"lr", "initial_lr"} & group.keys():
        check_number(group[name], f"{name} of {where}", 0)
    try:
        check_group({"params": [], **group}, "HotSwap")
    except HotSwapError as error:
        raise CheckpointError(f"The checkpoint cannot be loaded: {error}") from error


def _is_plain(value: object) -> bool:
    """Whether a value consists of plain data alone: no tensors and no other objects."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _check_like(value: Any, now: Any, where: str) -> None:
    """A value of a group is of the same kind as the one that is there now."""
    if now is None or isinstance(now, bool):
        if now is None and is_number(value):
            check_number(value, where)
        elif not (value is None or isinstance(value, bool)):
            refuse(where, "true, false or None")
    elif is_number(now):
        finite = math.isfinite(float(now))
        check_number(value, where, *((-MOST, MOST) if finite else ()), finite=finite)
    elif isinstance(now, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(now):
            refuse(where, f"{len(now)} values")
        for item, own in zip(value, now, strict=True):
            _check_like(item, own, where)
    elif isinstance(now, str) and not isinstance(value, str):
        refuse(where, "a word")


def _check_state(
    values: Mapping[Any, Any], owner: Tensor, now: Mapping[str, Any], forms: Mapping[str, Form] | None, where: str
) -> None:
    """The state of one parameter has the shapes that belong to it, as far as those are known, and finite values."""
    shape = None if is_lazy(owner) else tuple(owner.shape)
    for name, value in values.items():
        if not isinstance(name, str):
            refuse(where, "a dictionary by name")
        here = f"{name} in {where}"
        if forms is not None:
            _check_form(value, forms.get(name), shape, here)
            low = value if is_number(value) else local(value) if isinstance(value, Tensor) else None
            if name in NOT_NEGATIVE and low is not None and bool(torch.as_tensor(low < 0).any()):
                refuse(here, "nowhere below zero")
        elif isinstance(value, Tensor) and isinstance(now.get(name), Tensor):
            check_tensor(value, here, tuple(now[name].shape))
    for name, value in values.items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.is_meta:
            part = local(value)  # optimizers of others may mean something by an infinite number
            if bool(part.isnan().any()) or (forms is not None and not bool(part.isfinite().all())):
                refuse(f"{name} in {where}", "finite")


def _check_form(value: Any, form: Form | None, shape: tuple[int, ...] | None, where: str) -> None:
    """A value is of the form that a fresh optimizer gives it; where it gives none, of the parameter's."""
    if value is None:
        return  # whether it may be is tried
    if form is None:
        check_tensor(value, where, shape, floating=True)
    elif not form.scalar:
        check_tensor(value, where, form.shape, floating=form.floating)
    else:
        check_number(value, where, -MOST, MOST)
        if isinstance(value, Tensor):
            check_tensor(value, where, form.shape, floating=form.floating)
            if value.dtype in LOW_PRECISION:
                refuse(where, f"in float32, not {value.dtype}, in which a count of steps comes to an end")


# --- a step with tiny tensors -----------------------------------------------------------------------------------------


class Unlike(Exception):  # noqa: N818 (an answer, not a failure)
    """The optimizer cannot step with these values; the message is its own."""


class Form(NamedTuple):
    """A value that a fresh optimizer keeps under a name of one parameter."""

    scalar: bool
    shape: tuple[int, ...] | None
    """The shape of the tensor; None where the shape of the tiny tensor does not tell it."""
    floating: bool
    tiny: Any
    """The value that the optimizer keeps for the tiny tensor."""


def _is_torchs(base: Optimizer) -> bool:
    """Whether the base is an optimizer of torch's own, and no subclass of one."""
    return getattr(torch.optim, type(base).__name__, None) is type(base)


def _fresh_forms(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Form]] | None:
    """The values that the base keeps of each parameter after a first step with these values of its groups.

    None where that cannot be known: the optimizer is not torch's own, or takes other steps than with dense gradients.

    Raises:
        Unlike: It cannot step with these values, but with its own.
    """
    own = base.param_groups
    if not _is_torchs(base) or any(parameter.is_meta for group in own for parameter in group["params"]):
        return None
    try:
        twin = _stepped(base, groups)
    except Exception as error:
        try:
            _stepped(base, [{name: value for name, value in group.items() if name != "params"} for group in own])
        except Exception:
            return None
        raise Unlike(said(error)) from error
    owners = [parameter for group in own for parameter in group["params"]]
    return [
        {name: _form(value, owner) for name, value in twin.state.get(small, {}).items()}
        for small, owner in zip(_parameters(twin), owners, strict=True)
    ]


def _try_state(
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
            tiny = _parameters(twin)
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


def _parameters(twin: Optimizer) -> list[Tensor]:
    return [parameter for group in twin.param_groups for parameter in group["params"]]


def _stepped(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> Optimizer:
    with _quiet():
        twin = _twin(base, groups)
        _step(twin)
    return twin


def _twin(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> Optimizer:
    """An optimizer of the same class over tiny tensors, with these values; its constructor looks at all of them."""
    kind: Any = type(base)
    takes = inspect.signature(kind).parameters
    tiny = [[_tiny(parameter) for parameter in group["params"]] for group in base.param_groups]
    for parameters, group in zip(tiny, groups, strict=True):
        if parameters:
            kind(parameters, **{name: value for name, value in group.items() if name in takes})
    settings = {name: value for name, value in base.defaults.items() if name in takes}
    twin: Optimizer = kind([{"params": parameters} for parameters in tiny], **settings)
    for own, group in zip(twin.param_groups, groups, strict=True):
        for name in set(own) - set(group) - {"params"}:
            del own[name]
        own.update(group)
    twin.__setstate__({"param_groups": twin.param_groups})  # with names of later versions
    return twin


def _tiny(parameter: Tensor) -> Tensor:
    shape = () if is_lazy(parameter) else PRIMES[: parameter.dim()]
    return torch.ones(shape, dtype=parameter.dtype, device=parameter.device, requires_grad=True)


def _step(twin: Optimizer) -> None:
    for parameter in _parameters(twin):
        parameter.grad = torch.full_like(parameter, 0.01)
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
