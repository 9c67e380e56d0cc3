"""Workloads on images: a sigmoid autoencoder, the paper's network, and two convolutional networks with batch norm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, pad, relu

from hotswap.bench.workloads.base import (
    WORKLOADS,
    Batch,
    Size,
    Task,
    Workload,
    in_bfloat16,
    judged_by_error,
    judged_by_loss,
    minibatches_of,
    seeded,
)
from hotswap.data import load
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron

__all__ = ["Autoencoder", "CifarResnet", "FashionConvolution", "Images", "PaperNetwork"]

MEASURED = 5000
"""How many training images the training measure is of."""


class Images(NamedTuple):
    """A data set. Its test images are the validation set, by which references are chosen, and no method's settings."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @classmethod
    def of(cls, name: str, device: torch.device | str, *, flat: bool) -> Images:
        """The data set of this name, with pixels between 0 and 1."""
        data = load(name)
        arrays = (data.train_inputs(flat=flat), data.train_labels, data.test_inputs(flat=flat), data.test_labels)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    @property
    def measured(self) -> Batch:
        """The training images that are measured."""
        return self.train_x[:MEASURED], self.train_y[:MEASURED]

    @property
    def validation(self) -> Batch:
        """The images that nothing is trained on."""
        return self.test_x, self.test_y

    def minibatches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Shuffled, epoch after epoch."""
        return minibatches_of(self.train_x, self.train_y, batch_size, seed)


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

        minibatches = partial(images.minibatches, 100, seed)
        return judged_by_loss(model, steps, minibatches, loss, images.measured, images.validation)


def autoencoder(sizes: tuple[int, ...]) -> nn.Sequential:
    """Sigmoid units down to the smallest layer and up again; the last layer gives logits."""
    widths = [*sizes, *reversed(sizes[:-1])]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


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

        def minibatches() -> Iterator[Batch]:
            plain = images.minibatches(batch_size, seed)
            return augmented(plain, seed) if full else plain

        return judged_by_error(model, steps, minibatches, images.measured, images.validation)


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
        minibatches = partial(images.minibatches, batch_size, seed)
        return judged_by_error(model, steps, minibatches, images.measured, images.validation, scores)


@WORKLOADS.register("paper_network")
class PaperNetwork(Workload):
    """Five epochs, where the paper has 500: as long as people train who have other things to do."""

    title = "the paper's network on MNIST"
    measured = "validation error"
    data = MappingProxyType({"full": "mnist", "smoke": "digits"})

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        images = Images.of(self.data[size], device, flat=True)
        hidden, steps = (PAPER_HIDDEN, 4600) if size == "full" else ((16,), 80)
        model = multilayer_perceptron((images.train_x.shape[1], *hidden, 10), seed=seed).to(device)
        minibatches = partial(images.minibatches, 64, seed)
        return judged_by_error(model, steps, minibatches, images.measured, images.validation)
