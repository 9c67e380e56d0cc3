"""The base optimizer's parameter groups and its state of each parameter, checked before they are loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from hotswap.errors import CheckpointError, HotSwapError
from hotswap.optim.loading.trying import Form, Unlike, fresh_forms, is_torchs, try_state
from hotswap.optim.loading.values import check_number, check_table, check_tensor, is_number, refuse
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION
from hotswap.optim.probing.moves.shards import local
from hotswap.optim.validation import check_group

__all__ = ["check_base", "check_saved_base"]

NOT_NEGATIVE = {
    *("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta", "sum", "exp_inf", "step_size"),
    *("variance", "row_var", "col_var"),
}
"""What torch's own optimizers keep that is a sum of squares, a size or a count."""

MOST = torch.finfo(torch.float32).max
"""What a single number that is kept can be at most: it becomes a tensor."""


def check_saved_base(base: Optimizer, saved: Mapping[str, Any], *, nan: bool) -> None:
    """Check what `base.load_state_dict` is to load. With `nan`, tensors may have values that are not finite.

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
    states, parameters = check_table(saved.get("state"), "state"), set(places)
    if not is_torchs(base):  # some optimizers of others have entries of no parameter, by words
        parameters |= {key for key in states if isinstance(key, str)}
    if strange := [key for key in states if not _is_key(key) or key not in parameters]:
        refuse("state", f"by the numbers of the parameters, which {strange[0]!r} is none of")
    known = {place: states[key] for place, key in enumerate(places) if key in states}
    values = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    check_base(base, values, known, "of the base optimizer", nan=nan)


def _is_key(key: object) -> bool:
    return isinstance(key, int | str) and not isinstance(key, bool)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def check_base(base: Optimizer, groups: Sequence[Any], states: Mapping[int, Any], whose: str, *, nan: bool) -> None:
    """Check the values of parameter groups, and the state of parameters by their place in all groups.

    There may be fewer groups than the base has; `whose` they are is for sentences. With `nan`, see `check_saved_base`.

    Raises:
        CheckpointError: See `check_saved_base`.
    """
    if len(groups) > len(base.param_groups):
        refuse(f"groups {whose}", f"at most {len(base.param_groups)}")
    own = base.param_groups[: len(groups)]
    for number, (group, now) in enumerate(zip(groups, own, strict=True)):
        _check_group(check_table(group, f"group {number} {whose}"), {**now, **base.defaults}, f"group {number} {whose}")
    try:
        forms = fresh_forms(base, groups)
    except Unlike as error:
        raise _other_values(base, whose, error) from error
    owners = [parameter for group in own for parameter in group["params"]]
    for place, values in states.items():
        if not 0 <= place < len(owners):
            refuse(f"state {whose}", f"of at most {len(owners)} parameters")
        where = f"the state of parameter {place} {whose}"
        _check_state(check_table(values, where), owners[place], base.state.get(owners[place], {}), forms, place, where)
        if not nan:
            _check_finite(values, where, infinite=forms is None)
    if forms is not None:
        try:
            try_state(base, groups, states, forms)
        except Unlike as error:
            raise _other_values(base, whose, error) from error


def _other_values(base: Optimizer, whose: str, error: Unlike) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint is damaged, or of another base optimizer: {type(base).__name__} cannot step with the groups "
        f"and the state {whose} ({error}). Nothing was changed; construct the optimizer around the same base."
    )


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
        check_group(dict(group), "HotSwap")
    except HotSwapError as error:
        raise CheckpointError(f"The checkpoint cannot be loaded: {error}") from error


def _is_plain(value: object) -> bool:
    """Whether a value has no tensors in it, and nothing else that is more than data."""
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
    values: Mapping[Any, Any],
    owner: Tensor,
    now: Mapping[str, Any],
    forms: list[Mapping[str, Form]] | None,
    place: int,
    where: str,
) -> None:
    """What is kept of one parameter has the shapes that belong to it, as far as those are known."""
    shape = None if is_lazy(owner) else tuple(owner.shape)
    for name, value in values.items():
        if not isinstance(name, str):
            refuse(where, "a dictionary by name")
        here = f"{name} in {where}"
        if forms is not None:
            _check_form(value, forms[place].get(name), shape, here)
        elif isinstance(value, Tensor) and isinstance(now.get(name), Tensor):
            check_tensor(value, here, tuple(now[name].shape))
        if name in NOT_NEGATIVE and forms is not None:
            low = value if is_number(value) else local(value) if isinstance(value, Tensor) else None
            if low is not None and bool(torch.as_tensor(low < 0).any()):
                refuse(here, "nowhere below zero")


def _check_form(value: Any, form: Form | None, shape: tuple[int, ...] | None, where: str) -> None:
    """A value is of the form that a fresh optimizer gives it; where it gives none, of the parameter's."""
    if value is None:
        return  # whether it may be is tried
    if form is not None and form.scalar:
        check_number(value, where, -MOST, MOST)
        if isinstance(value, Tensor):
            check_tensor(value, where, form.shape, floating=form.floating)
            if value.dtype in LOW_PRECISION:
                refuse(where, f"in float32, not {value.dtype}, in which a count of steps comes to an end")
    elif form is None:
        check_tensor(value, where, shape, floating=True)
    else:
        check_tensor(value, where, form.shape, floating=form.floating)


def _check_finite(values: Mapping[str, Any], where: str, *, infinite: bool) -> None:
    """The base would step to what is not finite. Optimizers of others may mean something by what is `infinite`."""
    for name, value in values.items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.is_meta:
            part = local(value)
            if bool(part.isnan().any()) or not (infinite or bool(part.isfinite().all())):
                refuse(f"{name} in {where}", "finite")
