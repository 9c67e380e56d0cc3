"""The digits of scikit-learn, the Dataset they come in, and data sets by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest

import hotswap.data
from hotswap.data import DATASETS, Dataset, load, load_digits
from hotswap.errors import DataError, SettingError


def parts(dataset: Dataset, **changes: Any) -> dict[str, Any]:
    return {field.name: getattr(dataset, field.name) for field in fields(dataset)} | changes


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


def test_inputs_are_rows_from_zero_to_one(digits: Dataset) -> None:
    inputs = digits.train_inputs()
    assert inputs.dtype == np.float32
    assert inputs.shape == (1442, 64)
    assert (inputs.min(), inputs.max()) == (0.0, 1.0)
    assert np.array_equal(inputs[3] * 16, digits.train_images[3].ravel())
    assert digits.test_inputs().shape == (355, 64)


def test_a_dataset_reads_well_and_cannot_be_changed(digits: Dataset) -> None:
    assert repr(digits) == (
        "Dataset('digits': 1442 train and 355 test images of 8x8, 10 classes, source: scikit-learn)"
    )
    with pytest.raises(FrozenInstanceError):
        digits.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, r"Dataset\(classes=1\): classes must be at least 2"),
        ({"classes": 9}, r"train_labels from 0 to 9\): train_labels must be in \[0, 9\)"),
        ({"scale": 0.0}, r"Dataset\(scale=0.0\): scale must be in \(0, 255\]"),
        ({"scale": 15.0}, r"train_images up to 16\): train_images must be in \[0, 15\]"),
        ({"test_images": np.zeros((355, 64), np.uint8)}, r"test_images=uint8\[355, 64\]\)"),
        ({"test_images": np.zeros((355, 8, 9), np.uint8)}, "must have the height and width of train_images"),
        ({"test_images": np.zeros((355, 8, 8))}, r"test_images=float64\[355, 8, 8\]\): test_images must be uint8"),
        ({"test_labels": np.zeros(354, np.int64)}, "one for each of the 355 images"),
        ({"test_labels": np.zeros(355, np.int32)}, "test_labels must be int64"),
        ({"test_labels": np.full(355, -1)}, r"must be in \[0, 10\)"),
    ],
)
def test_what_a_dataset_refuses(digits: Dataset, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Dataset(**parts(digits, **changes))


def test_without_scikit_learn_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # how Python marks a module that cannot be imported
    with pytest.raises(DataError, match=r"scikit-learn, which is not installed\. Install it with"):
        load_digits()


def test_by_name(digits: Dataset) -> None:
    lines: list[str] = []
    assert np.array_equal(load("digits", report=lines.append).test_labels, digits.test_labels)
    assert lines == ["Digits: from scikit-learn."]
    assert set(DATASETS) == {"cifar10", "digits", "fashion_mnist", "mnist"}
    with pytest.raises(
        SettingError, match=r"^load\('minst'\): name must be one of cifar10, digits, fashion_mnist, mnist\.$"
    ):
        load("minst")
    with pytest.raises(SettingError, match="folder must be left out"):
        load("digits", folder=".")


def test_public_names() -> None:
    assert hotswap.data.__all__ == sorted(hotswap.data.__all__)
    assert set(hotswap.data.__all__) == {
        "DATASETS", "Dataset", "cache_folder", "load",
        "load_cifar10", "load_digits", "load_fashion_mnist", "load_mnist",
    }  # fmt: skip


def test_the_room_needs_no_torch_and_imports_scikit_learn_only_when_asked() -> None:
    script = "import sys; sys.modules['torch'] = None; import hotswap.data; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
