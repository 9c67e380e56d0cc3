"""Multilayer perceptrons, the paper's network among them: trained by batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from hotswap.studies.networks.base import NETWORKS, Network, Shape
from hotswap.studies.specification.settings import COUNT, one, one_of, several

if TYPE_CHECKING:
    from torch import nn

    from hotswap.ensemble import Model

__all__ = ["NetworkSpec"]

HiddenUnit = Literal["sigmoid", "tanh", "relu"]
Init = Literal["glorot", "sparse"]


@NETWORKS.register("perceptron")
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
