"""The losses by which a hot-swapped step judges arms: on its own minibatch, on the next one, or on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hotswap.ensemble.model import Along, Gradient, Model
from hotswap.ensemble.updates.variants import ArmTables, Variant

__all__ = ["Trials"]

Minibatch = tuple[Tensor, Tensor]


class Seen(NamedTuple):
    """A minibatch, and what all trials on it share."""

    x: Tensor
    y: Tensor
    at: Gradient
    beside: Any
    """Of the velocity, where momenta are swapped."""


class Trials:
    """Evaluates arms of all runs, or of some, from the start point of the latest step.

    variants: what there is to evaluate, and for how many runs.
    velocity: `(R, P)` where momenta or weight decays are swapped; otherwise None.
    """

    def __init__(
        self, model: Model, theta: Tensor, variants: Sequence[tuple[Variant, int]], velocity: Tensor | None
    ) -> None:
        self.model, self.theta, self.velocity = model, theta, velocity
        self.tables = ArmTables.of(variants, theta.device)
        weights = [variant.next_weight for variant, runs in variants for _ in range(runs)]
        self.next_weight = torch.tensor(weights, dtype=torch.float64, device=theta.device)
        self.passes = 1.0 + (self.next_weight > 0) * (self.next_weight < 1)
        """`(R,)` how many forward passes a trial takes."""
        self.seen: list[Seen] = []

    def begin(self, gradient: Gradient, now: Minibatch, later: Minibatch | None) -> tuple[Tensor, Tensor]:
        """The losses `(R,)` of the step's minibatch, and those that trials have to beat: with the next one's share."""
        loss = gradient.loss.double()
        self.seen = [self._see(self.model.before_trials(gradient, now[0]), *now)]  # kept: read where it lies
        if later is None:
            return loss, loss
        self.seen.append(self._see(self.model.elsewhere(self.theta, gradient, later[0]), *later))
        stay = torch.zeros_like(self.tables.rate[:, :1])
        other = self.model.trials(self.theta, self.seen[1].at, stay, *later).double()[:, 0]
        return loss, torch.lerp(loss, other, self.next_weight)

    def _see(self, at: Gradient, x: Tensor, y: Tensor) -> Seen:
        return Seen(x, y, at, None if self.velocity is None else self.model.beside(self.velocity, x))

    def losses(self, arms: Tensor, rows: Tensor | None = None) -> Tensor:
        """The losses `(R, J)` of arms `(R, J)`, float64; with `rows`, of the runs in these places only."""

        def picked(table: Tensor) -> Tensor:
            return (table if rows is None else table[rows]).gather(1, arms)

        rate, found = picked(self.tables.rate), []
        for x, y, at, beside in self.seen:
            more: dict[str, Any] = {}
            if self.velocity is not None:
                drag = rate * picked(self.tables.momentum)
                more = {"shrink": rate * picked(self.tables.decay), "along": Along(self.velocity, drag, beside)}
            found.append(self.model.trials(self.theta, at, rate, x, y, rows=rows, **more).double())
        if len(found) == 1:
            return found[0]
        weight = self.next_weight if rows is None else self.next_weight[rows]
        return torch.lerp(found[0], found[1], weight[:, None])
