"""Combinations that were measured to be ahead, ready to use.

A preset is here only if a study says so: ahead of the paper's algorithm, of AdaDelta and of the median of the best
tenth of SGD's settings, at every batch size, early and late, at equal cost, chosen from some first weights and
confirmed from others. `docs/beyond-the-paper.md` has the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from hotswap.arms import log_grid
from hotswap.optim import HotSwap
from hotswap.optim.validation import base_of, given_parameters
from hotswap.rewards import Reward
from hotswap.searches import Armijo

__all__ = ["adam"]


def adam(
    params: nn.Module | Iterable[Any],
    *,
    reward: Reward | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    loss_scale: float | None = None,
    module: nn.Module | None = None,
    process_group: Any = None,
    check_closure: bool = True,
    seed: int = 0,
) -> HotSwap:
    """Adam with a short memory, whose rate is proposed by discounted UCB and has to lower the loss by enough.

        optimizer = hotswap.presets.adam(model)
        for x, y in loader:
            loss = optimizer.step(lambda: loss_fn(model(x), y))

    It is `HotSwap` around `torch.optim.Adam(betas=(0.5, 0.99))` with 33 rates from 1 to 1e-6 and the search
    `Armijo(0.3, when_stuck="smallest")`; the bandit and the reward are the paper's. With Adam's usual betas a direction
    comes from many minibatches, and a search on one of them cannot judge it: at small batch sizes training gets stuck.

    It was measured on the paper's problem, a network of sigmoid units on MNIST. While the loss falls, a step takes two
    or three trials. Where it cannot fall any further, because float32 resolves no smaller one, all rates are tried in
    vain: stop there.

    Args:
        params: the model, parameters or parameter groups, as `HotSwapSGD` takes them.
        reward: see `HotSwap`, like everything below; `RelativeReduction()` for losses that go below zero.
        clip_norm: see `HotSwap`.
        clip_value: see `HotSwap`.
        loss_scale: see `HotSwap`.
        module: see `HotSwap`; by default the model, where `params` is one.
        process_group: see `HotSwap`.
        check_closure: see `HotSwap`.
        seed: see `HotSwap`.

    Memory beyond torch's Adam: two copies of the parameters.
    """
    params, module = given_parameters(params, module, "presets.adam", "an Adam")
    return HotSwap(
        base_of(torch.optim.Adam, params, "presets.adam", lr=1.0, betas=(0.5, 0.99)),
        {"lr": log_grid(1.0, 1e-6, 33)},
        search=Armijo(0.3, when_stuck="smallest"),
        reward=reward,
        clip_norm=clip_norm,
        clip_value=clip_value,
        loss_scale=loss_scale,
        module=module,
        process_group=process_group,
        check_closure=check_closure,
        seed=seed,
    )
