"""Optimizers that treat every parameter alike, such as AdaDelta and Adam: each is one function, its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from hotswap.ensemble.engine import Update
from hotswap.ensemble.kernels import fused
from hotswap.ensemble.model import Model
from hotswap.errors import SettingError

__all__ = ["Elementwise", "UpdateRule"]

Values: TypeAlias = dict[str, Any]
"""The values by name: a number that all runs share, or a tensor `(R, 1)` with one number for each run."""

UpdateRule: TypeAlias = Callable[[Any, Any, dict[str, Any], Values, Any], None]
"""`rule(theta, gradient, slots, values, step)`: one step of every run, written into `theta` and the slots in place.

    theta, gradient     `(R, P)`
    slots               what the rule remembers of each parameter, by name: `(R, P)`, zeros before the first step
    values              settings, by name: a number that all runs share, or a tensor `(R, 1)` with one for each
    step                how many steps there have been with this one: a tensor without axes

On a GPU it is compiled into one kernel. Use operators and methods of tensors, and no `if` on what they hold.
"""

RESERVED = ("theta", "step")  # names of tensors that the state has anyway


class Elementwise(Update):
    """Trains with a rule that treats every parameter alike.

    slots: the names of the tensors like θ that the rule keeps from step to step.
    values: by name, a number that all runs share, or a sequence with one for each. Where `lr` is such a sequence, its
        mean over an epoch is tallied as `mean_lr`.
    decay: one factor per run, by which the value `lr` is multiplied after every epoch.
    counts_steps: whether the rule reads `step`, which then is part of the state.
    """

    openings = frozenset({"step", "watched step"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        rule: UpdateRule,
        slots: Sequence[str],
        values: Mapping[str, float | Sequence[float]],
        decay: Sequence[float] | None = None,
        *,
        counts_steps: bool = True,
    ) -> None:
        rates = values.get("lr")
        self.varies = isinstance(rates, Sequence)
        super().__init__(model, theta, sums=("mean_lr",) if self.varies else ())
        if isinstance(slots, str):  # which is a sequence of strings, too: one for each letter
            raise SettingError(f"Elementwise(slots={slots!r}): slots must be a tuple of names, such as ({slots!r},).")
        for name in slots:
            if name in RESERVED:
                raise SettingError(f"Elementwise: a slot cannot be called {name!r}; choose another name.")
        if decay is not None and not self.varies:
            raise SettingError("Elementwise: there is no value 'lr' of each run to let decay; give one for each.")
        self.rule, self.counts_steps = rule, counts_steps
        self.slots = {name: torch.zeros_like(theta) for name in slots}
        self.first = torch.tensor(rates if self.varies else [], dtype=torch.float64)
        self.decay = None if decay is None else torch.tensor(decay, dtype=torch.float64)
        self.values: Values = {
            name: torch.tensor(value, dtype=torch.float64).to(theta)[:, None] if isinstance(value, Sequence) else value
            for name, value in values.items()
        }
        self.number = torch.zeros((), dtype=torch.float64, device=theta.device)

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """See `Update.begin_epoch`."""
        super().begin_epoch(epoch, watched=watched)
        if self.decay is not None:
            self.values["lr"].copy_((self.first * self.decay**epoch)[:, None])

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
        if self.varies:
            self.tally.sums["mean_lr"] += self.values["lr"][:, 0]
        fused(self.rule, self.theta)(self.theta, direction, self.slots, self.values, self.number)

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        counted = {"step": self.number} if self.counts_steps else {}
        return {"theta": self.theta, **self.slots, **counted}
