"""Data sets as NumPy arrays: fetched once, checked always, kept in a cache."""

from __future__ import annotations

from hotswap.data.cache import cache_folder
from hotswap.data.dataset import Dataset
from hotswap.data.digits import load_digits
from hotswap.data.mnist import load_mnist
from hotswap.data.registry import DATASETS, load

__all__ = ["DATASETS", "Dataset", "cache_folder", "load", "load_digits", "load_mnist"]
