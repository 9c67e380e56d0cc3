"""The interface between an ensemble and its model: losses and gradients of R copies of the model at once.

All parameters of a copy lie in one row of a `(R, P)` tensor, θ, so that an update is one pass over one tensor. The
buffers of the copies, such as the running statistics of batch norm, lie in the model object: so a model belongs to one
ensemble. Shapes: R runs, P parameters, B samples of a minibatch, J arms tried at once, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Along", "Gradient", "Model", "MomentumGroup"]


class Gradient(NamedTuple):
    """One forward and backward of every run."""

    loss: Tensor
    """`(R,)` the mean loss on the minibatch."""
    direction: Tensor
    """`(R, P)` its gradient."""
    memo: Any
    """Results of the forward pass that trials from the same point use again."""


class Along(NamedTuple):
    """A further direction along which trials move, beside the gradient: a velocity, say."""

    direction: Tensor
    """`(R, P)`."""
    rates: Tensor
    """`(R, J)` how far along it, for each run and arm."""
    memo: Any
    """The result of `Model.beside`, which all trials of a step share."""


class MomentumGroup(NamedTuple):
    """Runs that stand together and share a momentum coefficient."""

    rows: slice
    momentum: float


class Model(ABC):
    """R copies of one architecture that classify the same minibatch."""

    size: int
    """P, the number of parameters of one copy."""

    @abstractmethod
    def initial(self, seeds: Sequence[int]) -> Tensor:
        """θ `(R, P)` before training, one row per seed, float32 on the CPU."""

    def begin(self, theta: Tensor) -> dict[str, Tensor]:
        """The buffers of the copies that `initial` made, on the device of θ and in its precision; before any step.

        By name, R rows each: the very tensors, the same ones every time, so that copying into them restores. Most
        models have none. Should θ lose its last rows later, those of the buffers are no longer used.
        """
        return {}

    def sample_bytes(self, theta: Tensor, x: Tensor) -> int:
        """About how much memory evaluating one more sample takes, for all runs together; `x` as prepared."""
        return len(theta) * 1024 * theta.element_size()

    def prepare(self, x: Tensor) -> Tensor:
        """Inputs `(N, ...)` in the form that the other methods take as `x`; done once for a whole data set."""
        return x

    @abstractmethod
    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """Logits `(R, B, C)` of the trained networks: in evaluation mode, where a network has one."""

    @abstractmethod
    def gradient(self, theta: Tensor, x: Tensor, y: Tensor) -> Gradient:
        """Losses and gradients at θ: the gradient pass of a step, and so the one place where buffers change."""

    def gradient_beside(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """`(R, P)` the gradients at θ, of a pass that is not the step's own: a model with buffers must leave them."""
        return self.gradient(theta, x, y).direction

    def before_trials(self, gradient: Gradient, x: Tensor) -> Gradient:
        """The gradient with a memo of what all trials of a step share."""
        return gradient

    def elsewhere(self, theta: Tensor, gradient: Gradient, x: Tensor) -> Gradient:
        """The gradient with a memo for trials on another minibatch than the gradient pass."""
        return gradient

    def beside(self, direction: Tensor, x: Tensor) -> Any:
        """The memo of a further direction, for `Along`."""
        return None

    @abstractmethod
    def trials(
        self,
        theta: Tensor,
        gradient: Gradient,
        rates: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        rows: Tensor | None = None,
        shrink: Tensor | None = None,
        along: Along | None = None,
    ) -> Tensor:
        """Losses `(R, J)` at `θ − rates · gradient`, with `rates` `(R, J)`; `gradient` as `before_trials` left it.

        With `rows`, of the runs in these places only, which `rates` and the like have one row for each of.
        With `shrink` `(R, J)` and `along`, at `(1 − shrink) · θ − rates · gradient − along.rates · along.direction`.
        In training mode, like the gradient pass, but buffers stay as they are.
        """

    def descend(
        self, theta: Tensor, velocity: Tensor, rates: Tensor, groups: Sequence[MomentumGroup], x: Tensor, y: Tensor
    ) -> None:
        """`v ← μv − αg; θ ← θ + v` in place, with α = `rates` `(R,)`; `velocity` has the rows with μ ≠ 0 only."""
        step = self.gradient(theta, x, y).direction.mul_(-rates[:, None])
        for rows, momentum in groups:
            if momentum:
                velocity[rows].mul_(momentum).add_(step[rows])
                theta[rows].add_(velocity[rows])
            else:
                theta[rows].add_(step[rows])

    def gradient_norm(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """`(R,)` the Euclidean norm of the gradient at θ, which `gradient_beside` gives."""
        norm: Tensor = torch.linalg.vector_norm(self.gradient_beside(theta, x, y), dim=1)
        return norm
