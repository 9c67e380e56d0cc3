"""Train PyTorch networks without choosing an optimizer or a learning rate.

    optimizer = hotswap.Race(model, total_steps=epochs * len(loader))
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step(loss)
        optimizer.zero_grad()

`Race` lets several optimizers take turns. `HotSwap` and `HotSwapSGD` judge every step, after "Hot Swapping for Online
Adaptation of Optimization Hyperparameters" (Bache, DeCoste, Smyth, 2015). The names below are loaded when they are
first used, so that the command line answers before torch is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hotswap._version import __version__

if TYPE_CHECKING:
    from hotswap.arms import Arms, log_grid
    from hotswap.bandits import (
        UCB1,
        Bandit,
        DiscountedUCB,
        EpsilonGreedy,
        Exp3S,
        FactoredBandit,
        FixedArm,
        SlidingWindowUCB,
        SmoothedUCB,
        ThompsonSampling,
    )
    from hotswap.convergence import train_until
    from hotswap.errors import (
        CheckpointError,
        ClosureError,
        DataError,
        HotSwapError,
        LossError,
        SettingError,
        StudyError,
        UnitTaken,
        UnsupportedError,
    )
    from hotswap.optim import HotSwap, HotSwapSGD, HotSwapWarning, StepRecord, accumulate, in_trial
    from hotswap.race import Muon, Race, lanes
    from hotswap.rewards import LogReduction, RelativeReduction, Reward
    from hotswap.searches import Armijo, Backtracking, BothWays, FirstDecrease, NoSearch, Search

__all__ = [  # noqa: RUF022  # plainly sorted, as `dir` sorts
    "Armijo",
    "Arms",
    "Backtracking",
    "Bandit",
    "BothWays",
    "CheckpointError",
    "ClosureError",
    "DataError",
    "DiscountedUCB",
    "EpsilonGreedy",
    "Exp3S",
    "FactoredBandit",
    "FirstDecrease",
    "FixedArm",
    "HotSwap",
    "HotSwapError",
    "HotSwapSGD",
    "HotSwapWarning",
    "LogReduction",
    "LossError",
    "Muon",
    "NoSearch",
    "Race",
    "RelativeReduction",
    "Reward",
    "Search",
    "SettingError",
    "SlidingWindowUCB",
    "SmoothedUCB",
    "StepRecord",
    "StudyError",
    "ThompsonSampling",
    "UCB1",
    "UnitTaken",
    "UnsupportedError",
    "__version__",
    "accumulate",
    "in_trial",
    "lanes",
    "log_grid",
    "train_until",
]

_ROOMS = (  # rooms that need no torch come first
    *("errors", "arms", "rewards", "searches", "bandits", "convergence", "race", "optim"),
    *("data", "networks", "presets", "studies"),
)

_GONE = {
    "Guard": "a search refuses the steps that it was for; let every n-th step search, HotSwap(..., search_every=n).",
    "mixture": "give step() a function that adds both losses, trial_closure=lambda: 0.5 * one() + 0.5 * other().",
}


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"hotswap.{name}")
    if name in _GONE:
        raise AttributeError(f"hotswap.{name} was removed: {_GONE[name]}")
    if name not in __all__:
        raise AttributeError(f"module 'hotswap' has no attribute {name!r}")
    rooms = (import_module(f"hotswap.{room}") for room in _ROOMS)
    value = next(getattr(room, name) for room in rooms if name in room.__all__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
