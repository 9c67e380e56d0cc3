"""Networks that studies, the demo and the benchmarks train: the paper's perceptrons, and plain convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "PAPER_HIDDEN", "Activation", "Init", "convolutional", "multilayer_perceptron"]

PAPER_HIDDEN = (500, 300)
"""The hidden layers of the paper's network: 784-500-300-10 on MNIST."""

Activation = Literal["sigmoid", "tanh", "relu"]
Init = Literal["glorot", "sparse"]

ACTIVATIONS: dict[Activation, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
SPARSE_INPUTS = 15


def multilayer_perceptron(
    sizes: Sequence[int], *, seed: int, unit: Activation = "sigmoid", init: Init = "glorot"
) -> nn.Sequential:
    """Fully connected layers with units between them, `sizes` from the inputs to the outputs, zero biases.

    The paper does not say how weights begin. `"glorot"`, uniform on ±4·sqrt(6 / (fan_in + fan_out)) for sigmoid units
    and a quarter of that for others, was the usual choice in its time; `"sparse"`, a Gaussian on 15 inputs of each
    unit, is what the author's later code used. The seed is the only source of randomness.
    """
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layer = nn.Linear(fan_in, fan_out)
        with torch.no_grad():
            layer.weight.copy_(_weights(fan_in, fan_out, unit, init, generator))
            layer.bias.zero_()
        layers += [layer, ACTIVATIONS[unit]()]
    return nn.Sequential(*layers[:-1])


def _weights(fan_in: int, fan_out: int, unit: Activation, init: Init, generator: torch.Generator) -> Tensor:
    if init == "glorot":
        bound = (4 if unit == "sigmoid" else 1) * math.sqrt(6 / (fan_in + fan_out))
        return torch.empty(fan_out, fan_in).uniform_(-bound, bound, generator=generator)
    chosen = torch.rand(fan_out, fan_in, generator=generator).argsort(1)[:, :SPARSE_INPUTS]
    values = torch.randn(chosen.shape, generator=generator)
    return torch.zeros(fan_out, fan_in).scatter_(1, chosen, values)


def convolutional(
    shape: tuple[int, int, int],
    classes: int,
    *,
    seed: int,
    channels: Sequence[int] = (16, 32),
    batch_norm: bool = True,
) -> nn.Sequential:
    """A plain convolutional network for inputs `(B, C, H, W)`.

    One block for each of `channels`: a 3x3 convolution, batch norm, ReLU, and max pooling over 2x2 pixels while there
    are as many. Then global average pooling and a linear layer. Weights begin as He et al. (2015) propose for ReLU,
    Gaussian with variance 2 / fan_in; biases begin at zero. The seed is the only source of randomness.

    Args:
        shape: Of one input, `(C, H, W)`; grey pictures have one colour.
        classes: How many scores to return for each input.
        seed: Decides the weights.
        channels: The width of each block.
        batch_norm: Whether the blocks have it; without it, convolutions have biases.
    """
    generator = torch.Generator().manual_seed(seed)
    colours, height, width = shape
    layers: list[nn.Module] = []
    for entering, leaving in pairwise((colours, *channels)):
        convolution = nn.Conv2d(entering, leaving, kernel_size=3, padding=1, bias=not batch_norm, device="meta")
        layers.append(_he(convolution, generator))
        if batch_norm:
            layers.append(nn.BatchNorm2d(leaving))
        layers.append(nn.ReLU())
        if min(height, width) >= 2:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    last = nn.Linear((colours, *channels)[-1], classes, device="meta")
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _he(last, generator))


def _he(layer: nn.Conv2d | nn.Linear, generator: torch.Generator) -> nn.Module:
    """A layer made on "meta", where it draws no weights of its own, with weights from the generator."""
    made = layer.to_empty(device="cpu")
    with torch.no_grad():
        made.weight.normal_(0, math.sqrt(2 / made.weight[0].numel()), generator=generator)
        if made.bias is not None:
            made.bias.zero_()
    return made
