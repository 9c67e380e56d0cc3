"""The methods that are compared: each has one configuration for all workloads, as its authors recommend it."""

from hotswap.bench.methods import ours, others, tuned  # noqa: I001  # in the order in which they are listed
from hotswap.bench.methods.base import FIRST, METHODS, SECOND, Configuration, Method, Training

__all__ = ["FIRST", "METHODS", "SECOND", "Configuration", "Method", "Training", "others", "ours", "tuned"]
