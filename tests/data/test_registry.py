"""Data sets by name, one's own among them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hotswap.data
from hotswap.data import DATASETS, Dataset, load, load_digits
from hotswap.data.sources import Report
from hotswap.errors import SettingError


def test_by_name() -> None:
    lines: list[str] = []
    assert np.array_equal(load("digits", report=lines.append).test_labels, load_digits().test_labels)
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


def test_a_loader_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS, "_known", dict(DATASETS))  # taken back after the test

    @DATASETS.register("halves")
    def load_halves(folder: str | os.PathLike[str] | None, report: Report | None) -> Dataset:
        images = np.eye(4, dtype=np.uint8).reshape(4, 2, 2)
        labels = np.array([0, 0, 1, 1])
        return Dataset(
            name="halves", train_images=images, train_labels=labels, test_images=images, test_labels=labels,
            classes=2, scale=1.0, source=f"folder {folder}",
        )  # fmt: skip

    assert load("halves", folder="here").source == "folder here"
    with pytest.raises(SettingError, match="fashion_mnist, halves, mnist"):
        load("thirds")
    with pytest.raises(SettingError, match="There is a data set called 'mnist' already"):
        DATASETS.register("mnist")(load_halves)


def test_a_function_that_returns_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS._known, "nothing", lambda folder, report: None)
    with pytest.raises(
        SettingError, match=r"'nothing' must return a hotswap\.data\.Dataset, but it returned a NoneType"
    ):
        load("nothing")
