"""vSGD-fd: a learning rate for every parameter, from how its gradient varies and how it changes nearby.

Schaul, Zhang and LeCun, "No more pesky learning rates" (ICML 2013), derive the rate that lowers the expected loss most
where the loss is quadratic and separable: `1/h · ḡ² / (ḡ² + σ²)`, with h the curvature, ḡ the mean and σ² the variance
of a gradient. Schaul and LeCun, "Adaptive learning rates and parallelization for stochastic, sparse, non-smooth
gradients" (ICLR 2013), take the curvature from a second gradient on the same minibatch. What follows was compared with
the first author's program, and not line by line with the papers. For each parameter, with g its gradient at θ and g′
that at θ + ḡ:

    h = |g′ − g| / |ḡ|                                              the curvature on this minibatch
    τ ← τ + 1   if |g − ḡ| > 2 √(v̄ − ḡ²)  or  |h − h̄| > 2 √(w̄ − h̄²)  an outlier: let it count less
    ḡ ← (1 − 1/τ) ḡ + g/τ,    v̄ ← (1 − 1/τ) v̄ + g²/τ               averages with a memory of τ steps
    h̄ ← (1 − 1/τ) h̄ + h/τ,    w̄ ← (1 − 1/τ) w̄ + h²/τ
    η = (h̄ / w̄) · (ḡ² / v̄)                                         the rate
    τ ← (1 − ḡ² / v̄) τ + 1                                          a short memory where a step went far
    θ ← θ − η g

Where the papers leave a detail open, or differ, this follows the first author's program, github.com/schaul/py-optim:

- **Minibatches of n.** With v̄ the mean square of the gradients of single samples, the paper has
  `n ḡ² / (v̄ + (n − 1) ḡ²)` in place of `ḡ² / v̄`. Only the mean gradient of a minibatch is known here, and its mean
  square is `(v̄ + (n − 1) ḡ²) / n`: so `ḡ² / v̄` of minibatches is the same ratio, for every n. A minibatch is one draw,
  also for curvatures, outliers and τ.
- **Slow start.** `start` minibatches give the first averages, and nothing moves; ḡ then includes the minibatch whose
  curvature is taken along it. After the last of them v̄ is multiplied by `slow` = 2, so that rates begin too small, and
  τ = 2. (ICML 2013 multiplies by a tenth of the number of parameters.)
- **No division by zero.** The shift along a parameter is at least 10⁻⁹, and 10⁻⁹ is added to h̄ and to w̄, which bounds
  rates where the loss is flat. A parameter that never had a gradient stays.

It differs from the program in two places. Outliers are two standard deviations away, as in the paper, and not one. And
nothing is added to v̄: the program's 10⁻⁹ would stop parameters whose gradients have fallen below its root, 3 · 10⁻⁵.

A step takes two forward and two backward passes, six forward passes as costs are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hotswap.ensemble.engine import Update
from hotswap.ensemble.kernels import fused
from hotswap.ensemble.model import Model

__all__ = ["PASSES", "SLOTS", "Vsgd", "begin_averages", "shift_of", "vsgd_step"]

SLOTS = ("mean", "square", "curvature", "curvature_square", "memory")
"""The running values of each parameter: ḡ, v̄, h̄, w̄ and τ."""
PASSES = 6
"""Forward passes of a step, a backward counting as two."""
OUTLIER = 2.0  # standard deviations
FIRST_MEMORY = 2.0
EPSILON = 1e-9

Slots = dict[str, Tensor]


class Vsgd(Update):
    """Trains each row of θ with vSGD-fd.

    start: how many minibatches give the first averages.
    slow: by what the mean square of the gradient is multiplied after them.
    """

    openings = frozenset({"start", "watched start", "step", "watched step"})

    def __init__(self, model: Model, theta: Tensor, start: int = 10, slow: float = 2.0) -> None:
        super().__init__(model, theta)
        self.start, self.slow = start, slow
        self.slots: Slots = {name: torch.zeros_like(theta) for name in SLOTS}
        self.number = torch.zeros((), dtype=theta.dtype, device=theta.device)
        self.tally.totals["passes"] = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        self.steps = self.before = 0

    def begin(self, steps: int) -> None:
        """See `Update.begin`."""
        self.steps = steps

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """See `Update.begin_epoch`."""
        super().begin_epoch(epoch, watched=watched)
        self.before = epoch * self.steps

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {
            "start": partial(self._start, watched=False),
            "watched start": partial(self._start, watched=True),
            "step": partial(self._step, watched=False),
            "watched step": partial(self._step, watched=True),
        }

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        piece = "start" if self.before + number < self.start else "step"
        run(f"watched {piece}" if self.watched else piece)

    def _start(self, x: Tensor, y: Tensor, *, watched: bool) -> None:
        direction = self._gradient(x, y, watched)
        self.number += 1
        self.slots["mean"].lerp_(direction, 1 / self.number)
        nearby = self._nearby(x, y)
        fused(begin_averages, self.theta)(direction, nearby, self.slots, self.number, self.start, self.slow)

    def _step(self, x: Tensor, y: Tensor, *, watched: bool) -> None:
        direction = self._gradient(x, y, watched)
        nearby = self._nearby(x, y)
        fused(vsgd_step, self.theta)(self.theta, direction, nearby, self.slots)

    def _gradient(self, x: Tensor, y: Tensor, watched: bool) -> Tensor:
        """The gradients at θ."""
        direction = self.model.gradient(self.theta, x, y).direction
        if watched:
            self.tally.add_norm_of(direction)
        return direction

    def _nearby(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradients at θ + ḡ, on the same minibatch."""
        self.tally.totals["passes"] += PASSES
        return self.model.gradient_beside(self.theta + shift_of(self.slots["mean"]), x, y)

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        return {"theta": self.theta, **self.slots, "step": self.number, "passes": self.tally.totals["passes"]}


def shift_of(mean: Tensor) -> Tensor:
    """The shift of each parameter for the second gradient."""
    return torch.where(mean.abs() < EPSILON, EPSILON, mean)


def begin_averages(gradient: Tensor, nearby: Tensor, slots: Slots, number: Tensor, start: int, slow: float) -> None:
    """Take up the minibatch with this `number` of those that give the first averages; ḡ has taken it up before."""
    curvature, share = _curvature(gradient, nearby, slots), 1 / number
    slots["square"].lerp_(gradient * gradient, share)
    slots["curvature"].lerp_(curvature, share)
    slots["curvature_square"].lerp_(curvature * curvature, share)
    slots["square"].mul_(torch.where(number == start, slow, 1.0))
    slots["memory"].fill_(FIRST_MEMORY)


def vsgd_step(theta: Tensor, gradient: Tensor, nearby: Tensor, slots: Slots) -> None:
    """One step, in place: `gradient` at θ, `nearby` at θ + `shift_of(ḡ)`."""
    mean, square, memory = slots["mean"], slots["square"], slots["memory"]
    level, level_square = slots["curvature"], slots["curvature_square"]
    curvature = _curvature(gradient, nearby, slots)
    strange = _outlier(gradient, mean, square) | _outlier(curvature, level, level_square)
    memory.add_(strange.to(memory.dtype))
    share = 1 / memory
    mean.lerp_(gradient, share)
    square.lerp_(gradient * gradient, share)
    level.lerp_(curvature, share)
    level_square.lerp_(curvature * curvature, share)
    agreement = (mean * mean / (square + torch.finfo(square.dtype).tiny)).clamp(max=1)
    theta.sub_((level + EPSILON) / (level_square + EPSILON) * agreement * gradient)
    memory.mul_(1 - agreement).add_(1)


def _curvature(gradient: Tensor, nearby: Tensor, slots: Slots) -> Tensor:
    return (nearby - gradient).abs() / shift_of(slots["mean"]).abs()


def _outlier(value: Tensor, mean: Tensor, square: Tensor) -> Tensor:
    return (value - mean) ** 2 > OUTLIER**2 * (square - mean * mean)
