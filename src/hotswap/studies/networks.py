"""The networks that a study can train: settings, one module, and a model of R copies of it.

A new network is a subclass of `Network`, registered under its name in `NETWORKS`, in a user's own file as well as here.
Most need to say only how one module is built; the ensemble then trains copies of it through `torch.func`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from hotswap.registry import Registry
from hotswap.studies.settings import COUNT, Settings, build, one, one_of, several, yes_or_no

if TYPE_CHECKING:
    from torch import nn

    from hotswap.ensemble import Model

__all__ = ["NETWORKS", "ConvolutionalSpec", "Network", "NetworkSpec", "network_from_dict"]

Shape = tuple[int, int, int]
"""The shape of an image: channels, height, width."""
HiddenUnit = Literal["sigmoid", "tanh", "relu"]
Init = Literal["glorot", "sparse"]

PLAIN = "perceptron"
"""The network of a stored study that names none: in the first version there was no other."""


@dataclass(frozen=True, kw_only=True)
class Network(Settings, ABC):
    """A network with everything about it that a study fixes."""

    network: ClassVar[str]
    """The name under which the class is registered; `NETWORKS.register` sets it."""
    flat: ClassVar[bool] = False
    """True if the network takes images as rows of numbers, instead of `(channels, height, width)`."""

    @abstractmethod
    def module(self, shape: Shape, classes: int, seed: int) -> nn.Module:
        """One network for images of this shape: scores of `classes` classes. The seed is its only randomness."""

    def model(self, shape: Shape, classes: int) -> Model:
        """Copies of it for an ensemble."""
        from hotswap.ensemble import FunctionalModel  # noqa: PLC0415  # needs torch, which reading a study does not

        return FunctionalModel(partial(self.module, shape, classes))

    def to_dict(self) -> dict[str, Any]:
        """See `Settings.to_dict`; `network_from_dict` is the way back."""
        return self._named() | super().to_dict()

    def constants(self) -> dict[str, Any]:
        """See `Settings.constants`."""
        return self._named() | super().constants()

    def _named(self) -> dict[str, Any]:
        return {} if self.network == PLAIN else {"name": self.network}


NETWORKS: Registry[type[Network]] = Registry("network", attribute="network")
"""Every network that a study can train."""


def network_from_dict(stored: object, owner: str) -> Network:
    """The network that `to_dict` wrote; `owner` is whose table it is, for a sentence about what is wrong."""
    if not isinstance(stored, Mapping):
        return build(NETWORKS[PLAIN], stored, owner)
    table = dict(stored)
    return build(NETWORKS.find(table.pop("name", PLAIN), owner), table, owner)


@NETWORKS.register(PLAIN)
@dataclass(frozen=True, kw_only=True)
class NetworkSpec(Network):
    """A multilayer perceptron: fully connected layers, ended by a softmax over the classes.

    Attributes:
        hidden: The sizes of the hidden layers, from the inputs on.
        unit: What a hidden unit does with its input.
        init: How weights begin: `"glorot"` is uniform with a width that depends on the layer's size, `"sparse"` gives
            each unit a few Gaussian weights. Biases begin at zero.
    """

    hidden: tuple[int, ...] = several(
        COUNT, (500, 300), help="sizes of the hidden layers", distinct=False, example=(64, 32)
    )
    unit: HiddenUnit = one(one_of(get_args(HiddenUnit)), "sigmoid", help='"sigmoid", "tanh" or "relu"')
    init: Init = one(one_of(get_args(Init)), "glorot", help='"glorot", or "sparse" for a few Gaussian weights a unit')

    flat: ClassVar[bool] = True

    def sizes(self, shape: Shape, classes: int) -> tuple[int, ...]:
        """From the inputs to the outputs."""
        return (prod(shape), *self.hidden, classes)

    def module(self, shape: Shape, classes: int, seed: int) -> nn.Module:
        """See `Network.module`."""
        from hotswap.networks import multilayer_perceptron  # noqa: PLC0415  # needs torch, reading a study does not

        return multilayer_perceptron(self.sizes(shape, classes), seed=seed, unit=self.unit, init=self.init)

    def model(self, shape: Shape, classes: int) -> Model:
        """See `Network.model`: matrix products written out, several times as fast as any module."""
        from hotswap.ensemble import Mlp  # noqa: PLC0415  # needs torch, which reading a study does not

        return Mlp(self.sizes(shape, classes), self.unit, self.init)


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
