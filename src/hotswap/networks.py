"""Networks that more than one room trains: the paper's, and others of its kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["PAPER_HIDDEN", "multilayer_perceptron"]

PAPER_HIDDEN = (500, 300)
"""The hidden layers of the paper's network: 784-500-300-10 on MNIST."""


def multilayer_perceptron(sizes: Sequence[int], *, seed: int) -> nn.Sequential:
    """Fully connected layers with sigmoid units between them, `sizes` from the inputs to the outputs.

    The paper does not say how weights begin. Uniform on ±4·sqrt(6 / (fan_in + fan_out)) with zero biases was the usual
    choice for sigmoid units in its time. The seed is the only source of randomness.
    """
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layer = nn.Linear(fan_in, fan_out)
        bound = 4 * math.sqrt(6 / (fan_in + fan_out))
        with torch.no_grad():
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.zero_()
        layers += [layer, nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])
