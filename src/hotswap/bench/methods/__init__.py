"""The methods that are compared: each has one configuration for all workloads, as its authors recommend it."""

from hotswap.bench.methods import (
    d_adaptation,
    dog,
    hot_swapping,
    momo,
    prodigy,
    races,
    salsa,
    schedule_free,
    torch_optimizers,
    tuned,
    vsgd,
)
from hotswap.bench.methods.base import FIRST, METHODS, SECOND, Configuration, Method, Training

__all__ = [
    "FIRST",
    "METHODS",
    "SECOND",
    "Configuration",
    "Method",
    "Training",
    "d_adaptation",
    "dog",
    "hot_swapping",
    "momo",
    "prodigy",
    "races",
    "salsa",
    "schedule_free",
    "torch_optimizers",
    "tuned",
    "vsgd",
]
