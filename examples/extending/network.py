"""A network for studies: any module that draws no random numbers will do."""

from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from hotswap.studies import NETWORKS, Network, one
from hotswap.studies.settings import COUNT


@NETWORKS.register("normalised")
@dataclass(frozen=True, kw_only=True)
class NormalisedSpec(Network):
    """One hidden layer of rectified linear units, normalised over the minibatch."""

    width: int = one(COUNT, 32, help="units of the hidden layer")

    def module(self, shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # the only randomness there is
            hidden, output = nn.Linear(prod(shape), self.width), nn.Linear(self.width, classes)
        return nn.Sequential(nn.Flatten(), hidden, nn.BatchNorm1d(self.width), nn.ReLU(), output)
