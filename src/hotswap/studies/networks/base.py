"""The interface of networks that a study trains: settings, one module, and a model of R copies of it.

A new network is a subclass of `Network` in a file of its own, registered under its name in `NETWORKS`. Most need to say
only how one module is built; the ensemble then trains copies of it through `torch.func`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from hotswap.registry import Registry
from hotswap.studies.specification.settings import Settings, build

if TYPE_CHECKING:
    from torch import nn

    from hotswap.ensemble import Model

__all__ = ["NETWORKS", "Network", "network_from_dict"]

Shape = tuple[int, int, int]
"""The shape of an image: channels, height, width."""

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
        """For JSON; `network_from_dict` is the way back."""
        named = {} if self.network == PLAIN else {"name": self.network}
        return named | self.stored()

    def constants(self) -> dict[str, Any]:
        """The settings that decide a result, for the fingerprint."""
        named = {} if self.network == PLAIN else {"name": self.network}
        return named | self.decisive()


NETWORKS: Registry[type[Network]] = Registry("network", attribute="network")
"""Every network that a study can train."""


def network_from_dict(stored: object, owner: str) -> Network:
    """The network that `Network.to_dict` wrote; `owner` is whose table it is, for a sentence about what is wrong."""
    if not isinstance(stored, Mapping):
        return build(NETWORKS[PLAIN], stored, owner)
    table = dict(stored)
    return build(NETWORKS.find(table.pop("name", PLAIN), owner), table, owner)
