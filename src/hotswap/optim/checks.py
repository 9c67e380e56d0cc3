"""What is refused when a hot-swapped optimizer is made, and which losses it refuses."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap.bandits import Bandit
from hotswap.errors import LossError, SettingError, UnsupportedError
from hotswap.rewards import Reward
from hotswap.searches import Search

__all__ = ["check_parts", "initial_lr", "refuse_maximizing", "refuse_negative"]


def check_parts(optimizer: Any) -> None:
    """Whether the parts of a hot-swapped optimizer go together."""
    base = optimizer.base
    swappable = [
        name
        for name, value in base.defaults.items()
        if isinstance(value, (int, float, tuple, Tensor)) and not isinstance(value, bool)
    ]
    for name in optimizer.arms.names:
        if name not in swappable:
            raise SettingError(
                f"HotSwap(arms={{{name!r}: ...}}): {type(base).__name__} has no hyperparameter {name!r} to swap; "
                f"it has {', '.join(sorted(swappable))}."
            )
    refuse_maximizing(base.param_groups)
    if not any(group["params"] for group in base.param_groups):
        raise SettingError(f"{type(optimizer).__name__}: there are no parameters; pass model.parameters().")
    module: object = optimizer._module
    if module is not None and not isinstance(module, nn.Module):
        raise SettingError(
            f"{type(optimizer).__name__}(module={module!r}): module must be a torch.nn.Module, the model."
        )
    for part, kind in (("bandit", Bandit), ("search", Search), ("reward", Reward)):
        if not isinstance(getattr(optimizer, part), kind):
            raise SettingError(
                f"HotSwap({part}={getattr(optimizer, part)!r}): {part} must be a hotswap.{kind.__name__} object."
            )


def refuse_maximizing(groups: list[dict[str, Any]]) -> None:
    """A base that climbs is never found to have done well."""
    if any(group.get("maximize") for group in groups):
        raise UnsupportedError(
            "HotSwap searches for a smaller loss, but a parameter group has maximize=True and steps to larger ones; "
            "leave it out and return the negative of the objective, with reward=hotswap.RelativeReduction()."
        )


def initial_lr(base: Optimizer) -> float:
    """The rate that stands for 1."""
    if "lr" not in base.param_groups[0]:
        return 1.0
    rate = float(base.param_groups[0]["lr"])
    if not (math.isfinite(rate) and rate > 0):
        raise SettingError(
            f"HotSwap: the first parameter group has lr={rate!r}; it must be positive and finite, since the rates of "
            "all groups are taken relative to it."
        )
    return rate


def refuse_negative(loss: float, where: str) -> NoReturn:
    """A loss that has no logarithm."""
    raise LossError(
        f"The loss at {where} is {loss:g}, and the logarithm of a negative loss means nothing; pass "
        "reward=hotswap.RelativeReduction() for objectives that go below zero."
    )
