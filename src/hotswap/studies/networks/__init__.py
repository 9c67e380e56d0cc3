"""The networks that a study can train, one to a file; each file registers what it defines."""

from hotswap.studies.networks.base import NETWORKS, Network, network_from_dict
from hotswap.studies.networks.perceptron import NetworkSpec

from hotswap.studies.networks.convolutional import ConvolutionalSpec  # isort: skip  # the order in which they are listed

__all__ = ["NETWORKS", "ConvolutionalSpec", "Network", "NetworkSpec", "network_from_dict"]
