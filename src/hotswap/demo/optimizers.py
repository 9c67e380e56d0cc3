"""The contenders of the demo: optimizers that a newcomer can use without choosing a learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from hotswap.optim import HotSwapSGD
from hotswap.race import Race

__all__ = ["PRODIGY_IS_MISSING", "Contender", "Rate", "contenders"]

PRODIGY_IS_MISSING = "Prodigy is left out: it needs prodigyopt, which is not installed."


class Rate(Enum):
    """The origin of a learning rate."""

    WON = "won"
    ALONE = "alone"
    """The first lane's, in a run that was too short to race."""
    DEFAULT = "default"
    ESTIMATED = "estimated"
    MEDIAN = "median"


@dataclass(frozen=True)
class Contender:
    """An optimizer, and what its authors advise to do with its rate."""

    name: str
    rate: Rate
    build: Callable[[nn.Module, int], Optimizer]
    """Makes the optimizer of a network, for a run of so many passes."""
    schedule: Callable[[Optimizer, int], LRScheduler] | None = None
    """Makes a scheduler of the optimizer, for a run of so many passes."""


def contenders() -> list[Contender]:
    """The race of the default lanes, AdamW as torch has it, Prodigy where it is installed, the paper's algorithm."""
    found = [
        Contender("Race", Rate.WON, lambda model, passes: Race(model, total_steps=passes)),
        Contender("AdamW", Rate.DEFAULT, lambda model, _: torch.optim.AdamW(model.parameters())),
    ]
    if find_spec("prodigyopt") is not None:
        # Its authors advise a rate of 1 with a cosine over the run.
        found.append(Contender("Prodigy", Rate.ESTIMATED, lambda model, _: _prodigy(model), CosineAnnealingLR))
    return [*found, Contender("HotSwapSGD", Rate.MEDIAN, lambda model, _: HotSwapSGD(model.parameters()))]


def _prodigy(model: nn.Module) -> Optimizer:
    import prodigyopt  # noqa: PLC0415 (an optional package)

    optimizer: Optimizer = prodigyopt.Prodigy(model.parameters())
    return optimizer
