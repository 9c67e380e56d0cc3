"""The checks of a checkpoint: of values in it, and of the base optimizer's parameter groups and state.

All of it is checked before anything of it is loaded, and nothing is changed. A damage is one sentence, a
`hotswap.CheckpointError`.

A checkpoint is compared with a fresh optimizer of the same class and the same settings, which takes one step with tiny
tensors: names, shapes and types of its state are those that the checkpoint must have. Each parameter has a tiny tensor
in its place, with as many axes, each as long as another prime number, so that the shapes of the state of the tiny
tensor tell those of the parameter's state.
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
    *("variance", "row_var", "col_var", "mu_product"),
}
"""Names in the state of torch's own optimizers: sums of squares, sizes, counts and products."""

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
) -> Any:
    """A number between two others, both included, and finite unless that is not asked for; NaN is never one.

    Returns it as a plain number.
    """
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
    return value if whole else number


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
    value: object, where: str, shape: tuple[int, ...] | None = None, *, like: Tensor | None = None
) -> Tensor:
    """A tensor of numbers that are there, of a shape and of the kind of numbers of another tensor where that is known.

    Complex numbers come back as pairs of real ones.
    """
    pairs = like is not None and like.is_complex()
    if not isinstance(value, Tensor):
        refuse(where, f"a tensor, not of type {type(value).__name__}")
    if value.is_meta or value.layout is not torch.strided or value.is_quantized or value.is_complex() != pairs:
        refuse(where, f"an ordinary tensor of {'complex' if pairs else 'real'} numbers")
    if shape is not None and tuple(value.shape) != shape:
        refuse(where, f"of the shape {shape}, as this model has it, not {tuple(value.shape)}")
    floating = like is not None and like.is_floating_point()
    if like is not None and (value.dtype == torch.bool or value.is_floating_point() != floating):
        refuse(where, f"of {'floating' if floating else 'whole'} numbers, not {value.dtype}")
    return torch.view_as_real(local(value)) if pairs else local(value)


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
    owners, fresh = _parameters(base), _fresh(base, groups)
    for place, owner in enumerate(owners):
        where = f"the state of parameter {place} of the base optimizer"
        values = check_table(states.get(place, {}), where)
        if not all(isinstance(name, str) for name in values):
            refuse(where, "a dictionary by name")
        if fresh is None:
            _check_like_now(values, base.state.get(owner, {}), where)
        elif values or fresh.from_the_start:
            _check_like_fresh(values, owner, fresh.states[place], where)


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


def _check_like_now(values: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """The state of a parameter in an optimizer of others has the shapes of the present one, and no NaN."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            continue
        if isinstance(now.get(name), Tensor):
            check_tensor(value, f"{name} in {where}", tuple(now[name].shape))
        known = value.is_floating_point() and not value.is_meta
        if known and bool(local(value).isnan().any()):  # an infinite number may mean something there
            refuse(f"{name} in {where}", "finite")


def _check_like_fresh(values: Mapping[str, Any], owner: Tensor, fresh: Mapping[str, Any], where: str) -> None:
    """The state of a parameter has all that a fresh state has, in the same form, and finite values.

    Beside it there may be more, of the parameter's shape: SGD has momentum in some steps only, if that is swapped.
    """
    if missing := fresh.keys() - values.keys():
        refuse(where, f"with {', '.join(sorted(missing))}")
    for name, value in values.items():
        here, form = f"{name} in {where}", fresh.get(name)
        if form is None and value is None:
            continue
        if not isinstance(form, Tensor | None):
            check_number(value, here, -MOST, MOST)
            continue
        shape = None if is_lazy(owner) else tuple(owner.shape) if form is None else _shape(form, owner)
        part = check_tensor(value, here, shape, like=owner if form is None else form)
        if form is not None and form.dim() == 0 and part.dtype in LOW_PRECISION:
            refuse(here, f"in float32, not {part.dtype}, in which a count of steps comes to an end")
        if not bool(part.isfinite().all()):
            refuse(here, "finite")
        if name in NOT_NEGATIVE and bool((part < 0).any()):
            refuse(here, "nowhere below zero")


# --- a step with tiny tensors -----------------------------------------------------------------------------------------


class Fresh(NamedTuple):
    """The state of tiny tensors in a fresh optimizer."""

    states: list[Mapping[str, Any]]
    """After its first step, in the order of the parameters."""
    from_the_start: bool
    """Whether there is a state before the first step, so that no step can do without."""


def _is_torchs(base: Optimizer) -> bool:
    """Whether the base is an optimizer of torch's own, and no subclass of one."""
    return getattr(torch.optim, type(base).__name__, None) is type(base)


def _fresh(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> Fresh | None:
    """The state that a fresh optimizer of the base's class has with these values of its groups.

    None where that cannot be known: the optimizer is not torch's own, or takes other steps than with dense gradients.

    Raises:
        CheckpointError: It cannot step with these values, but with those of the base.
    """
    if not _is_torchs(base) or any(parameter.is_meta for parameter in _parameters(base)):
        return None
    try:
        return _stepped(base, groups)
    except Exception as error:
        try:
            _stepped(base, [{k: v for k, v in group.items() if k != "params"} for group in base.param_groups])
        except Exception:
            return None
        raise CheckpointError(
            f"The checkpoint is damaged, or of another base optimizer: {type(base).__name__} cannot step with the "
            f"groups and the state of the base optimizer ({said(error)}). Nothing was changed; construct the optimizer "
            "around the same base."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _stepped(base: Optimizer, groups: Sequence[Mapping[str, Any]]) -> Fresh:
    with _quiet():
        twin = _twin(base, groups)
        from_the_start = bool(twin.state)
        _step(twin)
    return Fresh([twin.state.get(tiny, {}) for tiny in _parameters(twin)], from_the_start)


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


def _shape(form: Tensor, owner: Tensor) -> tuple[int, ...] | None:
    """The shape of a parameter's state where the tiny tensor's is `form`; None where that does not tell it."""
    lengths = {1: 1, **dict(zip(PRIMES, owner.shape, strict=False))}
    known = owner.dim() <= len(PRIMES) and all(length in lengths for length in form.shape)
    return tuple(lengths[length] for length in form.shape) if known else None
