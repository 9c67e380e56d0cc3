"""Workloads on samples that are made: a regression whose loss goes below zero, and an ill-conditioned one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hotswap.bench.workloads.base import WORKLOADS, Batch, Size, Task, Workload, judged_by_loss, minibatches_of, seeded

__all__ = ["GaussianRegression", "LogisticRegression"]


WAVY = 8
"""Features of the first problem."""

FEATURES, CONDITION = 200, 1e4
"""Features of the second, and how far their directions differ in length, squared."""


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
        (x, y), validation = noisy_waves(count, device), noisy_waves(count // 4, device, seed=1)
        model = seeded(lambda: two_layers(width), seed).to(device)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            predicted: Tensor = model(x)
            mean, log_variance = predicted.unbind(1)
            return (log_variance + (y - mean).square() * torch.exp(-log_variance)) / 2

        return judged_by_loss(
            model, steps, lambda: minibatches_of(x, y, 64, seed), loss, (x, y), validation, shown=torch.exp
        )


def two_layers(width: int) -> nn.Sequential:
    """Two layers of tanh, then a mean and the logarithm of a variance."""
    return nn.Sequential(nn.Linear(WAVY, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))


def noisy_waves(count: int, device: torch.device | str, seed: int = 0) -> Batch:
    """A smooth function of eight numbers, with noise between 0.01 and 0.2, of which the seed draws samples."""
    problem, samples = torch.Generator().manual_seed(0), torch.Generator().manual_seed(100 + seed)
    waves = torch.randn(WAVY, 4, generator=problem)
    x = torch.randn(count, WAVY, generator=samples)
    mean = torch.sin(x @ waves / 2).mean(1)
    noise = 0.01 + 0.19 * torch.sigmoid(2 * x[:, 0])
    return x.to(device), (mean + noise * torch.randn(count, generator=samples)).to(device)


@WORKLOADS.register("logistic_regression")
class LogisticRegression(Workload):
    """Convex, with a Hessian whose eigenvalues differ by ten thousand in size, and in no direction of the axes."""

    title = "ill-conditioned logistic regression"
    measured = "validation loss"

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        count, steps = (20_000, 40_000) if size == "full" else (600, 80)
        (x, y), validation = turned_samples(count, device), turned_samples(count // 4, device, seed=1)
        model = seeded(lambda: nn.Linear(FEATURES, 1), seed).to(device)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return binary_cross_entropy_with_logits(model(x)[:, 0], y, reduction="none")

        return judged_by_loss(model, steps, lambda: minibatches_of(x, y, 64, seed), loss, (x, y), validation)


def turned_samples(count: int, device: torch.device | str, seed: int = 0) -> Batch:
    """Inputs and labels of one and the same problem, of which the seed draws samples."""
    problem, samples = torch.Generator().manual_seed(0), torch.Generator().manual_seed(100 + seed)
    turn = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=problem))[0]
    lengths = torch.logspace(0, -0.5 * torch.tensor(CONDITION).log10().item(), FEATURES)
    teacher = torch.randn(FEATURES, generator=problem) / lengths / FEATURES**0.5
    inner = torch.randn(count, FEATURES, generator=samples) * lengths
    chance = torch.sigmoid(3 * inner @ teacher)
    labels = (torch.rand(count, generator=samples) < chance).float()
    return (inner @ turn.T).to(device), labels.to(device)
