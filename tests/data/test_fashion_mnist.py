"""Fashion-MNIST: its sources, and the real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hotswap.data import load_fashion_mnist
from hotswap.data.cache import Cache
from hotswap.data.fashion_mnist import fashion_mnist_sources
from hotswap.errors import SettingError


def test_sources_are_asked_nearest_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    far = ["mirror fashion-mnist.s3-website.eu-central-1.amazonaws.com", "Debian package dataset-fashion-mnist"]
    bare = fashion_mnist_sources(cache, installed=tmp_path / "gone")
    assert [source.label for source in bare] == ["cache", *far]
    with_package = fashion_mnist_sources(cache, folder=tmp_path, installed=tmp_path)
    assert [source.label for source in with_package] == [
        "named folder", "cache", "installed Debian package dataset-fashion-mnist", *far,
    ]  # fmt: skip


def test_a_folder_that_does_not_exist_is_a_wrong_argument(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^load_fashion_mnist\(folder='.*gone'\): folder must be a folder that"):
        load_fashion_mnist(tmp_path / "gone")


@pytest.mark.downloads
def test_counts_shapes_and_pixels() -> None:
    fashion = load_fashion_mnist()
    assert fashion.train_images.shape == (60_000, 28, 28)
    assert fashion.test_images.shape == (10_000, 28, 28)
    assert np.bincount(fashion.train_labels).tolist() == [6_000] * 10
    assert np.bincount(fashion.test_labels).tolist() == [1_000] * 10
    assert fashion.train_labels[:5].tolist() == [9, 0, 0, 3, 0]
    # The mean and deviation that examples of Fashion-MNIST normalise with.
    train = fashion.train_images / 255
    assert train.mean() == pytest.approx(0.2860, abs=5e-5)
    assert train.std() == pytest.approx(0.3530, abs=5e-5)
