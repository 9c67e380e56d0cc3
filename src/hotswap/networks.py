"""Networks that more than one room trains: the paper's, and others of its kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["PAPER_HIDDEN", "UNITS", "Init", "Unit", "multilayer_perceptron"]

PAPER_HIDDEN = (500, 300)
"""The hidden layers of the paper's network: 784-500-300-10 on MNIST."""

Unit = Literal["sigmoid", "tanh", "relu"]
Init = Literal["glorot", "sparse"]

UNITS: dict[Unit, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
SPARSE_INPUTS = 15


def multilayer_perceptron(
    sizes: Sequence[int], *, seed: int, unit: Unit = "sigmoid", init: Init = "glorot"
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
        layers += [layer, UNITS[unit]()]
    return nn.Sequential(*layers[:-1])


def _weights(fan_in: int, fan_out: int, unit: Unit, init: Init, generator: torch.Generator) -> Tensor:
    if init == "glorot":
        bound = (4 if unit == "sigmoid" else 1) * math.sqrt(6 / (fan_in + fan_out))
        return torch.empty(fan_out, fan_in).uniform_(-bound, bound, generator=generator)
    chosen = torch.rand(fan_out, fan_in, generator=generator).argsort(1)[:, :SPARSE_INPUTS]
    values = torch.randn(chosen.shape, generator=generator)
    return torch.zeros(fan_out, fan_in).scatter_(1, chosen, values)
