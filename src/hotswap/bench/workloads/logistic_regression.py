"""Logistic regression on inputs whose directions differ in length by a factor of a hundred."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hotswap.bench.workloads.base import WORKLOADS, Batch, Size, Task, Workload, judged_by_loss, minibatches_of, seeded

__all__ = ["LogisticRegression"]

FEATURES, CONDITION = 200, 1e4


@WORKLOADS.register("logistic_regression")
class LogisticRegression(Workload):
    """Convex, with a Hessian whose eigenvalues differ by ten thousand in size, and in no direction of the axes."""

    title = "ill-conditioned logistic regression"
    measured = "validation loss"

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        count, steps = (20_000, 40_000) if size == "full" else (600, 80)
        (x, y), validation = made(count, device), made(count // 4, device, seed=1)
        model = seeded(lambda: nn.Linear(FEATURES, 1), seed).to(device)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return binary_cross_entropy_with_logits(model(x)[:, 0], y, reduction="none")

        return judged_by_loss(model, steps, lambda: minibatches_of(x, y, 64, seed), loss, (x, y), validation)


def made(count: int, device: torch.device | str, seed: int = 0) -> Batch:
    """Inputs and labels of one and the same problem, of which the seed draws samples."""
    problem, samples = torch.Generator().manual_seed(0), torch.Generator().manual_seed(100 + seed)
    turn = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=problem))[0]
    lengths = torch.logspace(0, -0.5 * torch.tensor(CONDITION).log10().item(), FEATURES)
    teacher = torch.randn(FEATURES, generator=problem) / lengths / FEATURES**0.5
    inner = torch.randn(count, FEATURES, generator=samples) * lengths
    chance = torch.sigmoid(3 * inner @ teacher)
    labels = (torch.rand(count, generator=samples) < chance).float()
    return (inner @ turn.T).to(device), labels.to(device)
