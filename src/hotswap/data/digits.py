"""Digits: 1,797 handwritten digits of 8x8 pixels, part of scikit-learn. Small enough for any test."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotswap.data.dataset import Dataset
from hotswap.data.registry import DATASETS
from hotswap.data.sources import Report
from hotswap.errors import DataError, SettingError

__all__ = ["load_digits"]


def load_digits() -> Dataset:
    """Load the digits that come with scikit-learn; nothing is fetched.

    They have no split of their own. Here every fifth sample *of each class* is a test sample: no seed, the
    same split everywhere, and classes in proportion. (Every fifth of all would follow a rhythm in the order
    of the labels, and give 21 test samples of one class and 52 of another.)

    Returns:
        1,442 train and 355 test images `(N, 8, 8)`, pixels from 0 to 16.

    Raises:
        DataError: scikit-learn is not installed, or has no digits.
    """
    found = find_spec("sklearn")  # it is not imported: that would take as long as to import torch
    if found is None or found.origin is None:
        raise DataError(
            "The digits are part of scikit-learn, which is not installed. Install it with: pip install scikit-learn."
        )
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():
        raise DataError(f"There are no digits in this scikit-learn: {file} is missing. Install another version of it.")
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)  # a row for each image: 64 pixels, then the label
    images, labels = table[:, :64].reshape(-1, 8, 8), table[:, 64].astype(np.int64)
    test = _rank_within_class(labels) % 5 == 4
    return Dataset(
        name="digits",
        train_images=images[~test],
        train_labels=labels[~test],
        test_images=images[test],
        test_labels=labels[test],
        classes=10,
        scale=16.0,
        source="scikit-learn",
    )


@DATASETS.register("digits")
def _load_by_name(folder: str | os.PathLike[str] | None, report: Report | None) -> Dataset:
    """The digits as `load("digits")` returns them."""
    if folder is not None:
        raise SettingError(
            f"load('digits', folder={os.fspath(folder)!r}): folder must be left out, "
            f"because the digits are part of scikit-learn."
        )
    dataset = load_digits()
    if report is not None:
        report(f"Digits: from {dataset.source}.")
    return dataset


def _rank_within_class(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each of the `(N,)` labels, how many equal ones come before it."""
    ranks = np.empty_like(labels)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranks[members] = np.arange(len(members))
    return ranks
