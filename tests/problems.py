"""Small objectives that exist twice: as NumPy functions for the oracle, as torch modules for the optimizer.

Every problem has positive losses, float64 parameters in one flat vector, and minibatches that are passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """One objective in torch; the NumPy side evaluates the same function through float64 tensors."""

    name: str
    theta: Array
    batches: list[tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, tuple[Tensor, Tensor]], Tensor]

    def f(self, theta: Array, batch: object) -> float:
        with torch.no_grad():
            return float(self.loss(torch.from_numpy(theta.copy()), batch))  # type: ignore[arg-type]

    def g(self, theta: Array, batch: object) -> Array:
        point = torch.from_numpy(theta.copy()).requires_grad_()
        (gradient,) = torch.autograd.grad(self.loss(point, batch), point)  # type: ignore[arg-type]
        return gradient.numpy()


def quadratic(steps: int = 300) -> Problem:
    """A badly conditioned bowl, condition 1e4, whose floor is not zero."""
    generator = torch.Generator().manual_seed(1)
    scales = torch.logspace(-2, 2, 12, dtype=torch.float64)
    batches = [(torch.randn(12, generator=generator, dtype=torch.float64), scales) for _ in range(steps)]
    return Problem(
        "quadratic",
        np.linspace(-2, 3, 12),
        batches,
        lambda theta, batch: 0.5 * (batch[1] * (theta - 0.1 * batch[0]).square()).sum() + 0.01,
    )


def rosenbrock(steps: int = 300) -> Problem:
    """A curved valley: the best rate changes as it is followed."""
    empty = torch.zeros(0)

    def loss(theta: Tensor, _batch: tuple[Tensor, Tensor]) -> Tensor:
        return (100 * (theta[1:] - theta[:-1].square()).square() + (1 - theta[:-1]).square()).sum()

    return Problem("rosenbrock", np.array([-1.2, 1.0, 0.7, -0.4]), [(empty, empty)] * steps, loss)


def logistic(steps: int = 300) -> Problem:
    """Logistic regression on minibatches of made-up data."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(400, 8, generator=generator, dtype=torch.float64)
    labels = (inputs @ torch.arange(8.0, dtype=torch.float64) + 8 * torch.randn(400, generator=generator) > 0).double()
    order = [torch.randint(0, 400, (32,), generator=generator) for _ in range(steps)]
    return Problem(
        "logistic",
        np.zeros(8),
        [(inputs[rows], labels[rows]) for rows in order],
        lambda theta, batch: torch.nn.functional.binary_cross_entropy_with_logits(batch[0] @ theta, batch[1]),
    )


def network(steps: int = 300) -> Problem:
    """A sigmoid network 6-10-3 with cross-entropy: the paper's kind of problem, and it overflows at large rates."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    labels = (inputs[:, 0] > 0).long() + (inputs[:, 1] * inputs[:, 2] > 0).long()
    order = [torch.randint(0, 300, (20,), generator=generator) for _ in range(steps)]

    def loss(theta: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
        w1, b1, w2, b2 = theta.split([60, 10, 30, 3])
        hidden = torch.sigmoid(batch[0] @ w1.view(6, 10) + b1)
        return torch.nn.functional.cross_entropy(hidden @ w2.view(10, 3) + b2, batch[1])

    theta = 0.5 * torch.randn(103, generator=generator, dtype=torch.float64)
    return Problem("network", theta.numpy(), [(inputs[rows], labels[rows]) for rows in order], loss)


def exploding(steps: int = 200) -> Problem:
    """exp of exp: large rates give inf and NaN, so the edges of the reward are on the main path."""
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(steps, 3, generator=generator, dtype=torch.float64)

    def loss(theta: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
        return torch.exp(theta + 0.3 * batch[0]).sum() + torch.log(theta + 3.0).square().sum()

    return Problem("exploding", np.array([2.0, 1.0, 0.5]), [(row, row) for row in noise], loss)


PROBLEMS = (quadratic, rosenbrock, logistic, network, exploding)
