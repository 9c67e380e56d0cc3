"""Data sets by name, for studies and command lines.

A loader is a function of two arguments, registered under the name by which a study's file and `hotswap data get` ask
for it. The loaders of this package register themselves in their own files; yours does the same:

    @DATASETS.register("spirals")
    def load_spirals(folder=None, report=None):
        ...
        return Dataset(name="spirals", ...)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from hotswap.data.dataset import Dataset
from hotswap.data.sources import Report
from hotswap.errors import SettingError
from hotswap.registry import Registry

__all__ = ["DATASETS", "Loader", "hand_over", "load"]

Loader = Callable[[str | os.PathLike[str] | None, Report | None], Dataset]
"""Takes the folder to look in first, or None, and whom to tell where the data came from, or None."""

DATASETS: Registry[Loader] = Registry("data set")
"""Every data set that `load` knows, by name."""

_HANDED_OVER: dict[str, Dataset] = {}


def load(name: str, *, folder: str | os.PathLike[str] | None = None, report: Report | None = None) -> Dataset:
    """Load a data set by name.

    Args:
        name: The name of a data set in `DATASETS`.
        folder: A folder with its files, to be looked in first.
        report: Is told, a line at a time, where the data came from.

    Raises:
        SettingError: There is no such data set; the message lists those that there are.
        DataError: The data set cannot be had.
    """
    if name not in DATASETS:
        raise SettingError(f"load({name!r}): name must be one of {', '.join(sorted(DATASETS))}.")
    if folder is None and name in _HANDED_OVER:
        return _HANDED_OVER[name]
    dataset = DATASETS[name](folder, report)
    if not isinstance(dataset, Dataset):
        raise SettingError(
            f"The function of the data set {name!r} must return a hotswap.data.Dataset, but it returned a "
            f"{type(dataset).__name__}."
        )
    return dataset


def hand_over(datasets: Iterable[Dataset]) -> None:
    """Have `load` return these from now on: a worker of a cluster is sent them, and need not find them on its node."""
    _HANDED_OVER.update((dataset.name, dataset) for dataset in datasets)
