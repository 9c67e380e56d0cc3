"""A convolutional network with batch norm on Fashion-MNIST."""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap.bench.workloads.base import (
    WORKLOADS,
    Batch,
    Size,
    Task,
    Workload,
    classification_measures,
    in_bfloat16,
    seeded,
)
from hotswap.bench.workloads.images import Images

__all__ = ["FashionConvolution"]


def convolutions(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Blocks of two convolutions with batch norm, each of which halves the picture."""
    layers: list[nn.Module] = []
    for width in widths:
        for inputs in (channels, width):
            layers += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


@WORKLOADS.register("fashion_convolution")
class FashionConvolution(Workload):
    """Six convolutions, of 32, 64 and 128 channels."""

    title = "a convolution with batch norm on Fashion-MNIST"
    measured = "validation error"
    wants_gpu = True
    bfloat16_on_gpu = True
    data = MappingProxyType({"full": "fashion_mnist", "smoke": "digits"})

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        images = Images.of(self.data[size], device, flat=False)
        widths, steps, batch_size = ((32, 64, 128), 4000, 128) if size == "full" else ((4, 8), 80, 32)
        model = seeded(lambda: convolutions(1, widths), seed).to(device)

        scores = in_bfloat16(model, device)

        def loss(batch: Batch) -> Tensor:
            return cross_entropy(scores(batch[0]), batch[1])

        return Task(
            model,
            steps,
            lambda: images.minibatches(batch_size, seed),
            loss,
            classification_measures(model, images.measured, images.validation),
        )
