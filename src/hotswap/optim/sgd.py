"""HotSwapSGD: the paper's instance, ready to use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hotswap.arms import log_grid
from hotswap.bandits import Bandit
from hotswap.errors import SettingError
from hotswap.optim.hotswap import HotSwap
from hotswap.optim.validation import base_of, given_parameters
from hotswap.pacing import When
from hotswap.rewards import Reward
from hotswap.searches import Search

__all__ = ["HotSwapSGD"]


class HotSwapSGD(HotSwap):
    """Stochastic gradient descent that chooses its learning rate on every minibatch.

        optimizer = HotSwapSGD(model)
        for x, y in loader:
            loss = optimizer.step(lambda: loss_fn(model(x), y))

    Args:
        params: the model: its parameters are trained, and its buffers looked after, see `module` of `HotSwap`. Or
            parameters, or parameter groups; a group's `lr` (default 1) is its rate relative to the first group's.
        lr: the rates to choose from, in any order; `None` for the paper's, `log_grid()`.
        momentum: as torch's SGD has it; the search walks along the momentum direction. The paper uses none.
        weight_decay: added to the gradient, as torch's SGD has it.
        bandit: see `HotSwap`, like everything below; the defaults are the paper's.
        search: see `HotSwap`.
        reward: see `HotSwap`.
        clip_norm: see `HotSwap`.
        clip_value: see `HotSwap`.
        loss_scale: see `HotSwap`.
        module: see `HotSwap`; by default the model, where `params` is one.
        process_group: see `HotSwap`.
        check_closure: see `HotSwap`.
        seed: see `HotSwap`.
        search_every: see `HotSwap`; the paper searches in every step.
        search_when: see `HotSwap`.

    To swap more than the rate, give `HotSwap` a `torch.optim.SGD`.

    Memory beyond torch's SGD: one copy of the parameters.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Any],
        lr: Iterable[float] | None = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        bandit: Bandit | None = None,
        search: Search | None = None,
        *,
        reward: Reward | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        loss_scale: float | None = None,
        module: nn.Module | None = None,
        process_group: Any = None,
        check_closure: bool = True,
        seed: int = 0,
        search_every: int | None = None,
        search_when: When | None = None,
    ) -> None:
        params, module = given_parameters(params, module, "HotSwapSGD", "an SGD")
        given: dict[str, Any] = {"momentum": momentum, "weight_decay": weight_decay}
        for name, value in given.items():
            if not isinstance(value, int | float) and not (isinstance(value, Tensor) and value.numel() == 1):
                raise SettingError(
                    f"HotSwapSGD({name}={value!r}): {name} must be a number; to swap it too, write "
                    f"HotSwap(torch.optim.SGD(...), arms={{'lr': hotswap.log_grid(), {name!r}: [...]}})."
                )
            if not 0 <= value < float("inf"):
                raise SettingError(f"HotSwapSGD({name}={value!r}): {name} must be finite and not negative.")
        if isinstance(lr, int | float):
            raise SettingError(
                f"HotSwapSGD(lr={lr!r}): lr is what rates there are to choose from, not one of them; leave it out for "
                "33 from 1e2 to 1e-6, or give others, such as hotswap.log_grid(1, 1e-3, 7)."
            )
        base = base_of(torch.optim.SGD, params, "HotSwapSGD", lr=1.0, momentum=momentum, weight_decay=weight_decay)
        super().__init__(
            base,
            {"lr": log_grid() if lr is None else lr},
            bandit,
            search,
            reward=reward,
            clip_norm=clip_norm,
            clip_value=clip_value,
            loss_scale=loss_scale,
            module=module,
            process_group=process_group,
            check_closure=check_closure,
            seed=seed,
            search_every=search_every,
            search_when=search_when,
        )
