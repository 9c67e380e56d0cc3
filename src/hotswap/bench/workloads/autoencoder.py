"""A deep autoencoder of sigmoid units on MNIST, whose loss stays on a plateau at first."""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hotswap.bench.workloads.base import WORKLOADS, Size, Task, Workload, judged_by_loss, seeded
from hotswap.bench.workloads.images import Images

__all__ = ["Autoencoder"]


@WORKLOADS.register("autoencoder")
class Autoencoder(Workload):
    """784-256-64-16-64-256-784, trained to give back its input: the classic test of second-order methods, smaller."""

    title = "a sigmoid autoencoder on MNIST"
    measured = "cross entropy per pixel on validation images"
    data = MappingProxyType({"full": "mnist", "smoke": "digits"})

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        images = Images.of(self.data[size], device, flat=True)
        pixels = images.train_x.shape[1]
        inner, steps = ((256, 64, 16), 4000) if size == "full" else ((24, 8), 80)
        model = seeded(lambda: autoencoder((pixels, *inner)), seed).to(device)

        def loss(x: Tensor, _: Tensor) -> Tensor:
            return binary_cross_entropy_with_logits(model(x), x, reduction="none").mean(1)

        return judged_by_loss(
            model, steps, lambda: images.minibatches(100, seed), loss, images.measured, images.validation
        )


def autoencoder(sizes: tuple[int, ...]) -> nn.Sequential:
    """Sigmoid units down to the smallest layer and up again; the last layer gives logits."""
    widths = [*sizes, *reversed(sizes[:-1])]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])
