"""Optimizers that treat every parameter alike, such as AdaDelta and Adam: each is one function, its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from hotswap.ensemble.kernels import fused
from hotswap.ensemble.model import Model
from hotswap.ensemble.updates.base import Update
from hotswap.errors import SettingError

__all__ = ["Elementwise", "Rule", "adadelta", "adadelta_rule"]

Rule: TypeAlias = Callable[[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor], Tensor], None]
"""`rule(theta, gradient, slots, values, step)`: one step of every run, written into `theta` and the slots in place.

    theta, gradient     `(R, P)`
    slots               what the rule remembers of each parameter, by name: `(R, P)`, zeros before the first step
    values              numbers of each run, by name: `(R, 1)`
    step                how many steps there have been with this one: a tensor without axes

On a GPU it is compiled into one kernel. Use operators and methods of tensors.
"""

RESERVED = ("theta", "step")  # names of tensors that the state has anyway


class Elementwise(Update):
    """Trains with a rule that treats every parameter alike.

    slots: the names of the tensors like θ that the rule keeps from step to step.
    values: for each name one number per run.
    decay: one factor per run, by which the value `lr` is multiplied after every epoch.
    counts_steps: whether the rule reads `step`, which then is part of the state.
    records_lr: whether the epoch's mean of the value `lr` is tallied, as `mean_lr`.
    """

    openings = frozenset({"step", "watched step"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        rule: Rule,
        slots: Sequence[str],
        values: Mapping[str, Sequence[float]],
        decay: Sequence[float] | None = None,
        *,
        counts_steps: bool = True,
        records_lr: bool = False,
    ) -> None:
        super().__init__(model, theta, sums=("mean_lr",) if records_lr else ())
        for name in slots:
            if name in RESERVED:
                raise SettingError(f"Elementwise: a slot cannot be called {name!r}; choose another name.")
        if "lr" not in values and (records_lr or decay is not None):
            raise SettingError("Elementwise: there is no value 'lr' to record or to let decay; give one for each run.")
        self.rule, self.counts_steps, self.records_lr = rule, counts_steps, records_lr
        self.slots = {name: torch.zeros_like(theta) for name in slots}
        self.first = {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in values.items()}
        self.decay = None if decay is None else torch.tensor(decay, dtype=torch.float64)
        self.values = {name: numbers.to(theta)[:, None].clone() for name, numbers in self.first.items()}
        self.number = torch.zeros((), dtype=torch.float64, device=theta.device)

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """See `Update.begin_epoch`."""
        super().begin_epoch(epoch, watched=watched)
        if self.decay is not None:
            self.values["lr"].copy_((self.first["lr"] * self.decay**epoch)[:, None])

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"step": self._step, "watched step": self._watched_step}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("watched step" if self.watched else "step")

    def _step(self, x: Tensor, y: Tensor) -> None:
        self._move(self.model.gradient(self.theta, x, y).direction)

    def _watched_step(self, x: Tensor, y: Tensor) -> None:
        direction = self.model.gradient(self.theta, x, y).direction
        self.tally.add_norm_of(direction)
        self._move(direction)

    def _move(self, direction: Tensor) -> None:
        if self.counts_steps:
            self.number += 1
        if self.records_lr:
            self.tally.sums["mean_lr"] += self.values["lr"][:, 0]
        fused(self.rule, self.theta)(self.theta, direction, self.slots, self.values, self.number)

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        counted = {"step": self.number} if self.counts_steps else {}
        return {"theta": self.theta, **self.slots, **counted}


def adadelta(model: Model, theta: Tensor, rho: float = 0.95, eps: float = 1e-6, lr: float = 1.0) -> Elementwise:
    """Zeiler's AdaDelta, as torch has it, with the same settings for all runs."""
    settings = {"rho": rho, "fresh": 1 - rho, "eps": eps, "lr": lr}  # 1 − ρ is rounded once, after the subtraction
    values = {name: [value] * len(theta) for name, value in settings.items()}
    return Elementwise(model, theta, adadelta_rule, ("squares", "moves"), values, counts_steps=False)


def adadelta_rule(
    theta: Tensor, gradient: Tensor, slots: dict[str, Tensor], values: dict[str, Tensor], step: Tensor
) -> None:
    """A `Rule`: running means of squared gradients and of squared moves, whose ratio takes the place of a rate."""
    squares, moves = slots["squares"], slots["moves"]
    rho, fresh, eps = values["rho"], values["fresh"], values["eps"]
    squares.mul_(rho).addcmul_(gradient * fresh, gradient)
    move = (moves + eps).sqrt_().div_((squares + eps).sqrt_()).mul_(gradient)
    moves.mul_(rho).addcmul_(move * fresh, move)
    theta.sub_(move.mul_(values["lr"]))
