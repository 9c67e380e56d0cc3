"""A small residual network with batch norm on CIFAR-10."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu

from hotswap.bench.workloads.base import (
    WORKLOADS,
    Batch,
    Size,
    Task,
    Workload,
    classification_measures,
    seeded,
)
from hotswap.bench.workloads.images import Images

__all__ = ["CifarResnet"]


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = inputs == outputs and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        inside = self.norms[1](self.second(relu(self.norms[0](self.first(x)))))
        return relu(inside + self.around(x))


def resnet(widths: tuple[int, ...]) -> nn.Sequential:
    """A block of each width; the first convolution halves the picture, and so does each width after the first."""
    first = nn.Conv2d(3, widths[0], 3, stride=2, padding=1, bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm2d(widths[0]), nn.ReLU()]
    inputs = widths[0]
    for number, width in enumerate(widths):
        layers.append(Block(inputs, width, stride=2 if number else 1))
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def augmented(batches: Iterator[Batch], seed: int) -> Iterator[Batch]:
    """Each minibatch shifted by up to four pixels and perhaps mirrored, as a whole."""
    numbers = torch.Generator().manual_seed(seed)
    for x, y in batches:
        down, right = (int(torch.randint(9, (), generator=numbers)) for _ in range(2))
        size = x.shape[-1]
        moved = pad(x, (4, 4, 4, 4))[..., down : down + size, right : right + size]
        yield (moved.flip(-1) if torch.rand((), generator=numbers) < 0.5 else moved), y


@WORKLOADS.register("cifar_resnet")
class CifarResnet(Workload):
    """Seven convolutions in a row, of 16, 32 and 64 channels; two and a half epochs.

    A step is so small that a GPU waits for its next kernel most of the time, and that one core can train a run in half
    a minute, so it is one of the small workloads. In float32 everywhere, so that runs on a GPU can be compared.
    """

    title = "a residual network with batch norm on CIFAR-10"
    measured = "validation error"
    data = MappingProxyType({"full": "cifar10", "smoke": "digits"})
    version = 3  # the first two were larger, and were never trained at full size

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        full = size == "full"
        images = Images.of(self.data[size], device, flat=False)
        if not full:  # grey, and three times the same
            images = images._replace(
                train_x=images.train_x.expand(-1, 3, -1, -1), test_x=images.test_x.expand(-1, 3, -1, -1)
            )
        widths, steps, batch_size = ((16, 32, 64), 2000, 64) if full else ((4, 8), 80, 32)
        model = seeded(lambda: resnet(widths), seed).to(device)
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch knows it

        def loss(batch: Batch) -> Tensor:
            return cross_entropy(model(batch[0]), batch[1])

        def minibatches() -> Iterator[Batch]:
            plain = images.minibatches(batch_size, seed)
            return augmented(plain, seed) if full else plain

        return Task(model, steps, minibatches, loss, classification_measures(model, images.measured, images.validation))
