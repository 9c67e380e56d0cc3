"""Networks: what they are made of, and that the seed decides everything."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from hotswap.networks import convolutional, multilayer_perceptron


def parameters(network: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def kinds(network: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in network.children()]


@pytest.mark.parametrize(
    "build",
    [
        lambda seed: multilayer_perceptron((6, 5, 3), seed=seed),
        lambda seed: multilayer_perceptron((20, 5, 3), seed=seed, init="sparse"),
        lambda seed: convolutional((3, 8, 8), 10, seed=seed),
    ],
)
def test_the_seed_decides_every_parameter(build: Callable[[int], nn.Module]) -> None:
    one = build(1)
    torch.manual_seed(99)  # a module's own initial weights come from here, and must all be replaced
    again = build(1)
    assert torch.equal(parameters(one), parameters(again))
    assert not torch.equal(parameters(one), parameters(build(2)))


def test_a_perceptron_has_activations_between_its_layers() -> None:
    network = multilayer_perceptron((4, 3, 2), seed=0, unit="relu")
    assert kinds(network) == ["Linear", "ReLU", "Linear"]
    assert network(torch.zeros(5, 4)).shape == (5, 2)


def test_a_convolutional_network_has_blocks_of_batch_norm() -> None:
    network = convolutional((3, 32, 32), 10, seed=0)
    block = ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]
    assert kinds(network) == [*block, *block, "AdaptiveAvgPool2d", "Flatten", "Linear"]
    assert network(torch.zeros(5, 3, 32, 32)).shape == (5, 10)
    assert sum(p.numel() for p in network.parameters()) == 3 * 16 * 9 + 32 + 16 * 32 * 9 + 64 + 32 * 10 + 10
    assert network[4].weight.std().item() == pytest.approx(math.sqrt(2 / (16 * 9)), rel=0.05)
    assert network[-1].bias.abs().max() == 0


def test_a_convolutional_network_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    convolutional((3, 8, 8), 10, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_small_pictures_are_pooled_as_long_as_there_are_pixels() -> None:
    network = convolutional((1, 4, 2), 3, seed=0, channels=(2, 2, 2), batch_norm=False)
    assert kinds(network)[:7] == ["Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "Conv2d", "ReLU"]
    assert network[0].bias.tolist() == [0, 0]
    assert network(torch.zeros(2, 1, 4, 2)).shape == (2, 3)
