"""An average of the weights, for runs whose end nobody knows: it stands in for rates that fall in the end.

    ā ← ā + (η + 1) / (t + η) · (θ − ā)

with η = 8 is a mean in which the last ninth of the t steps so far counts for most, whenever one stops (Shamir and
Zhang, "Stochastic Gradient Descent for Non-smooth Optimization", 2013). In every step that would be one more pass over
all weights, so the weights of every tenth step stand for the ten that end with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hotswap.optim.probing.moves.shards import local, sharded_like

__all__ = ["Average"]

ETA = 8

EVERY = 10
"""How many steps the weights of one step stand for."""


@dataclass
class Average:
    """The average of some parameters. It changes in place."""

    steps: int = 0
    """All of them, not only those that were looked at."""
    weights: dict[Tensor, Tensor] = field(default_factory=dict, repr=False)
    """By the parameter; in float32 where that is in less."""

    def follow(self, parameters: list[Tensor]) -> None:
        """Count a step, after which the parameters are as they are now."""
        self.steps += 1
        if self.steps % EVERY != 1:
            return
        since = range(max(self.steps - EVERY, 0) + 1, self.steps + 1)
        share = 1 - math.prod(1 - (ETA + 1) / (step + ETA) for step in since)
        moving = [parameter for parameter in parameters if parameter.requires_grad]
        for parameter in moving:
            if parameter not in self.weights:
                self.weights[parameter] = local(parameter).detach().to(torch.float32, copy=True)
        now = [local(parameter).detach().float() for parameter in moving]
        torch._foreach_lerp_([self.weights[parameter] for parameter in moving], now, share)

    def forget(self) -> None:
        """Begin anew with the next step."""
        self.steps = 0
        self.weights.clear()

    def place(self) -> Callable[[], None]:
        """Give the parameters their averages; returns what gives them back the weights that they have now."""
        now = {parameter: local(parameter).detach().clone() for parameter in self.weights}
        for parameter, average in self.weights.items():
            local(parameter).detach().copy_(average)

        def put_back() -> None:
            for parameter, weight in now.items():
                local(parameter).detach().copy_(weight)

        return put_back

    def packed(self, parameters: list[Tensor]) -> dict[str, Any]:
        """As it is stored."""
        pairs = ((str(place), parameter) for place, parameter in enumerate(parameters))
        return {place: sharded_like(p, self.weights[p]) for place, p in pairs if p in self.weights}

    def load(self, stored: dict[str, Any], steps: int, parameters: list[Tensor]) -> None:
        """The reverse."""
        self.steps = steps
        self.weights = {
            parameters[int(place)]: local(value).to(local(parameters[int(place)]).device, copy=True)
            for place, value in stored.items()
        }
