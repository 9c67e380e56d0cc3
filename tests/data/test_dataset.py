"""What every loader returns, in grey and in colour."""

from __future__ import annotations

import sys
from dataclasses import FrozenInstanceError, fields
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotswap.data import Dataset, load_digits
from hotswap.errors import DataError, SettingError


def parts(dataset: Dataset, **changes: Any) -> dict[str, Any]:
    return {field.name: getattr(dataset, field.name) for field in fields(dataset)} | changes


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_digits()


@pytest.fixture
def colours() -> Dataset:
    """Seven train and two test pictures of 2x3 pixels in four colours, all numbers of a picture different."""
    images = np.arange(9 * 24, dtype=np.uint8).reshape(9, 2, 3, 4)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    return Dataset(
        name="colours",
        train_images=images[:7],
        train_labels=labels[:7],
        test_images=images[7:],
        test_labels=labels[7:],
        classes=3,
        scale=255.0,
        source="made up",
    )


def test_colours_come_last_in_images_and_first_in_inputs(colours: Dataset) -> None:
    assert colours.shape == (4, 2, 3)
    assert colours.features == 24
    planes = colours.train_inputs(flat=False)
    assert planes.dtype == np.float32
    assert planes.shape == (7, 4, 2, 3)
    assert planes.flags.c_contiguous
    for colour in range(4):
        assert np.array_equal(np.rint(planes[:, colour] * 255), colours.train_images[..., colour])
    assert np.array_equal(colours.train_inputs(), planes.reshape(7, 24))
    assert colours.test_inputs(flat=False).shape == (2, 4, 2, 3)
    assert repr(colours) == ("Dataset('colours': 7 train and 2 test images of 2x3x4, 3 classes, source: made up)")


def test_grey_images_have_one_colour(digits: Dataset) -> None:
    assert digits.shape == (1, 8, 8)
    planes = digits.test_inputs(flat=False)
    assert planes.shape == (355, 1, 8, 8)
    assert np.array_equal(planes.reshape(355, 64), digits.test_inputs())


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
        ({"test_images": np.zeros((355, 8, 8, 3), np.uint8)}, "and as many colours"),
        ({"test_images": np.zeros((355, 8, 8, 0), np.uint8)}, r"or \(N, H, W, C\) in colour, none of them 0"),
        ({"test_images": np.zeros((355, 8, 8))}, r"test_images=float64\[355, 8, 8\]\): test_images must be uint8"),
        ({"test_labels": np.zeros(354, np.int64)}, "one for each of the 355 images"),
        ({"test_labels": np.zeros(355, np.int32)}, "test_labels must be int64"),
        ({"test_labels": np.full(355, -1)}, r"must be in \[0, 10\)"),
    ],
)
def test_what_a_dataset_refuses(digits: Dataset, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Dataset(**parts(digits, **changes))


# The digits of scikit-learn.


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


def test_without_scikit_learn_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    with monkeypatch.context() as patch:
        patch.setattr("hotswap.data.digits.find_spec", lambda _: elsewhere)
        with pytest.raises(DataError, match=r"no digits in this scikit-learn: .*digits\.csv\.gz is missing\. Install"):
            load_digits()
    monkeypatch.setitem(sys.modules, "sklearn", None)  # how Python marks a module that cannot be imported
    with pytest.raises(DataError, match=r"scikit-learn, which is not installed\. Install it with"):
        load_digits()
