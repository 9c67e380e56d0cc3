"""The digits of scikit-learn."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hotswap.data import Dataset, load_digits
from hotswap.errors import DataError


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_digits()


def test_counts_and_shapes(digits: Dataset) -> None:
    assert digits.train_images.shape == (1442, 8, 8)
    assert digits.test_images.shape == (355, 8, 8)
    assert np.bincount(digits.test_labels).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert np.bincount(digits.train_labels).tolist() == [143, 146, 142, 147, 145, 146, 145, 144, 140, 144]
    assert digits.features == 64


def test_the_split_uses_every_sample_once(digits: Dataset) -> None:
    from sklearn import datasets  # noqa: PLC0415

    bundle = datasets.load_digits()
    rows = np.concatenate([digits.train_inputs(), digits.test_inputs()]) * 16
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    ours = sorted(map(tuple, np.column_stack([rows, labels]).astype(int).tolist()))
    theirs = sorted(map(tuple, np.column_stack([bundle.data, bundle.target]).astype(int).tolist()))
    assert ours == theirs
    # Of the zeros, in their order, the fifth, tenth, ... are the test samples and the others the train samples.
    zeros = bundle.images[bundle.target == 0]
    assert np.array_equal(digits.test_images[digits.test_labels == 0], zeros[4::5])


def test_without_scikit_learn_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # how Python marks a module that cannot be imported
    with pytest.raises(DataError, match=r"scikit-learn, which is not installed\. Install it with"):
        load_digits()
