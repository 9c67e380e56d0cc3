"""Data sets as NumPy arrays: fetched once, checked always, kept in a cache."""

from __future__ import annotations

from hotswap.data.cifar10 import load_cifar10
from hotswap.data.dataset import Dataset
from hotswap.data.digits import load_digits
from hotswap.data.mnist import load_fashion_mnist, load_mnist
from hotswap.data.obtain import cache_folder
from hotswap.data.registry import DATASETS, load

__all__ = [
    "DATASETS",
    "Dataset",
    "cache_folder",
    "load",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
]
