"""Data sets by name, for command lines and configuration files."""

from __future__ import annotations

import os
from collections.abc import Callable

from hotswap.data.dataset import Dataset
from hotswap.data.digits import load_digits
from hotswap.data.mnist import load_mnist
from hotswap.data.sources import Report
from hotswap.errors import SettingError

__all__ = ["DATASETS", "Loader", "load"]

Loader = Callable[[str | os.PathLike[str] | None, Report | None], Dataset]
"""Takes the folder to look in first and whom to report to."""


def _digits(folder: str | os.PathLike[str] | None, report: Report | None) -> Dataset:
    if folder is not None:
        raise SettingError(
            f"load('digits', folder={os.fspath(folder)!r}): folder must be left out, "
            f"because the digits are part of scikit-learn."
        )
    dataset = load_digits()
    if report is not None:
        report(f"Digits: from {dataset.source}.")
    return dataset


DATASETS: dict[str, Loader] = {"digits": _digits, "mnist": load_mnist}
"""Every data set that `load` knows."""


def load(name: str, *, folder: str | os.PathLike[str] | None = None, report: Report | None = None) -> Dataset:
    """Load a data set by name.

    Args:
        name: One of `DATASETS`.
        folder: A folder with its files, to be looked in first.
        report: Is told, a line at a time, where the data came from.

    Raises:
        SettingError: There is no such data set; the message lists those that there are.
        DataError: The data set cannot be had.
    """
    if name not in DATASETS:
        raise SettingError(f"load({name!r}): name must be one of {', '.join(sorted(DATASETS))}.")
    return DATASETS[name](folder, report)
