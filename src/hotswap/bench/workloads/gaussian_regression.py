"""A regression with a Gaussian likelihood, whose loss goes below zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hotswap.bench.workloads.base import WORKLOADS, Batch, Size, Task, Workload, judged_by_loss, minibatches_of, seeded

__all__ = ["GaussianRegression"]

FEATURES = 8


@WORKLOADS.register("gaussian_regression")
class GaussianRegression(Workload):
    """A network that predicts a mean and a variance, on samples whose noise differs from place to place.

    The measures are exponentials of the mean negative log likelihood, so that they are positive.
    """

    title = "a regression with Gaussian likelihood"
    measured = "exponential of the validation loss"
    kinds = frozenset({"loss below zero"})

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        count, steps, width = (20_000, 20_000, 64) if size == "full" else (600, 80, 8)
        (x, y), validation = made(count, device), made(count // 4, device, seed=1)
        model = seeded(lambda: network(width), seed).to(device)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            predicted: Tensor = model(x)
            mean, log_variance = predicted.unbind(1)
            return (log_variance + (y - mean).square() * torch.exp(-log_variance)) / 2

        return judged_by_loss(
            model, steps, lambda: minibatches_of(x, y, 64, seed), loss, (x, y), validation, shown=torch.exp
        )


def network(width: int) -> nn.Sequential:
    """Two layers of tanh, then a mean and the logarithm of a variance."""
    return nn.Sequential(nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))


def made(count: int, device: torch.device | str, seed: int = 0) -> Batch:
    """A smooth function of eight numbers, with noise between 0.01 and 0.2, of which the seed draws samples."""
    problem, samples = torch.Generator().manual_seed(0), torch.Generator().manual_seed(100 + seed)
    waves = torch.randn(FEATURES, 4, generator=problem)
    x = torch.randn(count, FEATURES, generator=samples)
    mean = torch.sin(x @ waves / 2).mean(1)
    noise = 0.01 + 0.19 * torch.sigmoid(2 * x[:, 0])
    return x.to(device), (mean + noise * torch.randn(count, generator=samples)).to(device)
