"""Checks of what a hot-swapped optimizer is made of, and of the losses that it is given."""

from __future__ import annotations

import math
from collections.abc import Iterable
from inspect import signature
from typing import Any, NoReturn, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.bandits import Bandit
from hotswap.errors import ClosureError, LossError, SettingError, UnsupportedError
from hotswap.optim.moves import refuse_low_precision
from hotswap.optim.setters import check_setters
from hotswap.optim.user_warnings import warn
from hotswap.pacing import Pace, When
from hotswap.rewards import Reward
from hotswap.searches import Search

__all__ = [
    "base_of",
    "check_base",
    "check_group",
    "check_parts",
    "given_parameters",
    "initial_lr",
    "pace_for",
    "refuse_loss",
    "refuse_no_search",
    "swappable_in",
]

Base = TypeVar("Base", bound=Optimizer)


def check_parts(optimizer: Any, setters: object) -> None:
    """Check that the parts of a hot-swapped optimizer go together, with the setters that it is given."""
    base = optimizer.base
    taken = {name for group in base.param_groups for name in group}.union(base.defaults)
    check_setters(type(base).__name__, swappable_in(base), sorted(taken), setters, optimizer.arms)
    check_values(type(base), optimizer.arms)
    check_base(base, optimizer._module, type(optimizer).__name__)
    seed: object = optimizer._seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise SettingError(f"{type(optimizer).__name__}(seed={seed!r}): seed must be a whole number of 64 bits.")
    for part, kind in (("bandit", Bandit), ("search", Search), ("reward", Reward)):
        if not isinstance(getattr(optimizer, part), kind):
            raise SettingError(
                f"HotSwap({part}={getattr(optimizer, part)!r}): {part} must be a hotswap.{kind.__name__} object."
            )


def check_values(kind: type[Optimizer], arms: Arms) -> None:
    """Check that an optimizer of torch's takes the values that it would be given: its constructor says so."""
    for name, axis in zip(arms.names, arms.axes, strict=True):
        if not kind.__module__.startswith("torch.optim") or name == "lr" or name not in signature(kind).parameters:
            continue
        for value in axis:
            try:
                kind([torch.zeros(1, 1)], **{name: value})  # type: ignore[arg-type]  # by its own name for it
            except Exception as error:
                raise SettingError(
                    f"HotSwap(arms={{{name!r}: ...}}): {kind.__name__} takes no {name}={value!r} "
                    f"({' '.join(str(error).split())}); leave it out."
                ) from error


def given_parameters(
    params: nn.Module | Iterable[Any], module: nn.Module | None, owner: str, brings: str
) -> tuple[list[Any], nn.Module | None]:
    """The parameters or groups of an optimizer that brings its own base, and the model, where one was given."""
    if isinstance(params, Optimizer):
        raise SettingError(
            f"{owner}: it takes the model or its parameters, and brings {brings} of its own. Around "
            f"{type(params).__name__} write hotswap.HotSwap(optimizer, module=model), or "
            "hotswap.Race(model, optimizer, total_steps=...)."
        )
    if isinstance(params, nn.Module):
        module = params if module is None else module
        params = params.parameters()
    found = list(params) if isinstance(params, Iterable) else [params]
    if not found:
        raise SettingError(f"{owner}: there are no parameters; pass the model, or model.parameters().")
    return found, module


def base_of(kind: type[Base], params: list[Any], owner: str, **settings: Any) -> Base:
    """An optimizer of torch's over parameters or groups; what torch says against these becomes a sentence."""
    try:
        return kind(params, **settings)
    except Exception as error:
        why = "a group has no 'params'" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise SettingError(
            f"{owner}: {kind.__name__} cannot be made of these parameters ({why}); pass the model, model.parameters(), "
            "or a list of groups, each a dictionary with 'params'."
        ) from error


def swappable_in(base: Optimizer) -> list[str]:
    """The names of the base's hyperparameters that can have other values."""
    return [
        name
        for name, value in base.defaults.items()
        if isinstance(value, (int, float, tuple, Tensor)) and not isinstance(value, bool)
    ]


def check_base(base: Optimizer, module: object, owner: str) -> None:
    """Check that an optimizer of class `owner` can be around a base, and that there are parameters to move."""
    if any(home.__module__ == "hotswap.race.race" for home in type(base).__mro__):
        raise UnsupportedError(f"{owner} cannot be around a race, which swaps optimizers itself; use one of the two.")
    for group in base.param_groups:
        check_group(group, owner)
    inner = next((value for value in vars(base).values() if isinstance(value, Optimizer)), None)
    if inner is not None:
        raise UnsupportedError(
            f"{type(base).__name__} is around another optimizer, {type(inner).__name__}, whose state would advance at "
            f"every trial; give {owner} the inner one."
        )
    if not any(group["params"] for group in base.param_groups):
        raise SettingError(f"{owner}: there are no parameters; pass model.parameters().")
    if module is not None and not isinstance(module, nn.Module):
        raise SettingError(f"{owner}(module={module!r}): module must be a torch.nn.Module, the model.")


def check_group(group: dict[str, Any], owner: str) -> None:
    """Check that a parameter group can be hot-swapped; `owner` is the optimizer's class."""
    params = group.get("params") if isinstance(group, dict) else None
    if not isinstance(params, Iterable):
        raise SettingError(f"{owner}: a parameter group is a dictionary whose 'params' are a list of parameters.")
    if group.get("maximize"):
        raise UnsupportedError(
            f"{owner} looks for a smaller loss, but a parameter group has maximize=True and steps to larger ones; "
            "leave it out and return the negative of the objective, with reward=hotswap.RelativeReduction()."
        )
    if not isinstance(params, Tensor | list):
        params = group["params"] = list(params)  # torch would do the same, and an iterator can be read once
    named = [
        item[1] if isinstance(item, tuple) else item for item in ([params] if isinstance(params, Tensor) else params)
    ]
    refuse_low_precision(parameter for parameter in named if isinstance(parameter, Tensor))
    rate = group.get("lr", 1.0)
    if isinstance(rate, bool) or not isinstance(rate, int | float | Tensor):
        raise SettingError(
            f"{owner}: a parameter group has lr={rate!r}; it must be one number, a scale of the group's rates. What "
            "rates there are to choose from is said once, for all groups: HotSwapSGD(groups, lr=[...])."
        )


def pace_for(owner: str, every: object, when: object) -> Pace:
    """The pace that an optimizer's arguments `search_every` and `search_when` ask for; `owner` is its class."""
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise SettingError(
            f"{owner}(search_every={every!r}): search_every must be a whole number of at least 1, or None."
        )
    if when is not None and when not in get_args(When):
        choices = ", ".join(repr(choice) for choice in get_args(When))
        raise SettingError(f"{owner}(search_when={when!r}): search_when must be one of {choices}, or None.")
    if every is None and when is None:
        return Pace()
    return Pace(every, when)  # type: ignore[arg-type]  # it is one of the choices


def initial_lr(base: Optimizer) -> float:
    """The rate that all others are relative to: the first group's, before any scheduler has changed it."""
    first = base.param_groups[0]
    if "lr" not in first:
        return 1.0
    now, rate = float(first["lr"]), float(first.get("initial_lr", first["lr"]))
    if not (math.isfinite(rate) and rate > 0):
        raise SettingError(
            f"HotSwap: the first parameter group has lr={rate!r}; it must be positive and finite, since the rates of "
            "all groups are taken relative to it."
        )
    if now != rate:
        warn(
            f"A scheduler has set the base's lr to {now:g}, from {rate:g}, so all rates are scaled by {now / rate:g} "
            "until it sets another; if it is no longer in use, remove 'initial_lr' from the base's parameter groups."
        )
    return rate


def refuse_no_search() -> NoReturn:
    """Raise for a step without a closure before any search: no rate was chosen, and none ever would be."""
    raise ClosureError(
        "step() was called without a closure before any search, so no rate was chosen yet; nothing was changed. Write "
        "optimizer.step(lambda: loss_fn(model(x), y)) in place of zero_grad(), backward() and step(). Where a "
        "framework calls step(), use hotswap.integrations, or optimizer.search_with before."
    )


def refuse_loss(loss: float, where: str) -> NoReturn:
    """Raise for a loss that a search cannot work with: not finite, or negative where its logarithm is needed."""
    if not math.isfinite(loss):
        raise LossError(
            f"The loss at {where} is {loss}, so no trial can be compared with it; the parameters were left as they "
            "are. Look at this minibatch, or at what was done to the weights before this step."
        )
    raise LossError(
        f"The loss at {where} is {loss:g}, and the logarithm of a negative loss means nothing; pass "
        "reward=hotswap.RelativeReduction() for objectives that go below zero."
    )
