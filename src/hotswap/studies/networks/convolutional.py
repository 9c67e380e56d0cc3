"""Small convolutional networks with batch normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotswap.studies.networks.base import NETWORKS, Network, Shape
from hotswap.studies.specification.settings import COUNT, one, several, yes_or_no

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ConvolutionalSpec"]


@NETWORKS.register("convolutional")
@dataclass(frozen=True, kw_only=True)
class ConvolutionalSpec(Network):
    """Blocks of a 3×3 convolution, batch normalisation, rectified linear units and pooling, then a linear layer.

    Attributes:
        channels: How many channels each block gives, from the images on.
        batch_norm: True if blocks normalise over the minibatch.
    """

    channels: tuple[int, ...] = several(COUNT, (16, 32), help="channels of each block", distinct=False)
    batch_norm: bool = one(yes_or_no(), True, help="whether blocks normalise over the minibatch")

    def module(self, shape: Shape, classes: int, seed: int) -> nn.Module:
        """See `Network.module`."""
        from hotswap.networks import convolutional  # noqa: PLC0415  # needs torch, which reading a study does not

        return convolutional(shape, classes, channels=self.channels, batch_norm=self.batch_norm, seed=seed)
