"""What every loader returns: images and labels, split into train and test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotswap.errors import SettingError

__all__ = ["Dataset"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """Images of `classes` classes, as they were published: integers, unshuffled, not normalised.

    Attributes:
        name: The name it is loaded by, such as `"mnist"`.
        train_images: `(N, H, W)` uint8, pixels from 0 to `scale`.
        train_labels: `(N,)` int64, from 0 to `classes - 1`.
        test_images: `(M, H, W)` uint8, the same `H` and `W`.
        test_labels: `(M,)` int64.
        classes: How many classes there are.
        scale: The pixel value that means 1.0.
        source: Where the bytes came from this time, in words and without a path.
    """

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: int
    scale: float
    source: str

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise SettingError(f"Dataset(classes={self.classes}): classes must be at least 2.")
        if not 0 < self.scale <= 255:
            raise SettingError(f"Dataset(scale={self.scale}): scale must be in (0, 255].")
        self._check_split("train", self.train_images, self.train_labels)
        self._check_split("test", self.test_images, self.test_labels)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise SettingError(
                f"Dataset(test_images={_shown(self.test_images)}): test_images must have the height and "
                f"width of train_images, which are {_shown(self.train_images)}."
            )

    def _check_split(self, split: str, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        if images.dtype != np.uint8 or images.ndim != 3 or 0 in images.shape:
            raise SettingError(
                f"Dataset({split}_images={_shown(images)}): {split}_images must be uint8 of shape (N, H, W), "
                f"none of them 0."
            )
        if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
            raise SettingError(
                f"Dataset({split}_labels={_shown(labels)}): {split}_labels must be int64 of shape (N,), "
                f"one for each of the {len(images)} images."
            )
        if labels.min() < 0 or labels.max() >= self.classes:
            raise SettingError(
                f"Dataset({split}_labels from {labels.min()} to {labels.max()}): {split}_labels must be in "
                f"[0, {self.classes})."
            )
        if images.max() > self.scale:
            raise SettingError(
                f"Dataset({split}_images up to {images.max()}): {split}_images must be in [0, {self.scale:g}]."
            )

    @property
    def features(self) -> int:
        """Pixels of one image, `H * W`: the width of a network's input."""
        return int(np.prod(self.train_images.shape[1:]))

    def train_inputs(self) -> NDArray[np.float32]:
        """Return the train images as rows: `(N, H * W)` float32 in [0, 1], a fresh array."""
        return self._as_inputs(self.train_images)

    def test_inputs(self) -> NDArray[np.float32]:
        """Return the test images as rows: `(M, H * W)` float32 in [0, 1], a fresh array."""
        return self._as_inputs(self.test_images)

    def _as_inputs(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        rows = images.reshape(len(images), -1)
        # Dividing (not multiplying by 1/scale) makes the brightest pixel exactly 1.0.
        return np.divide(rows, np.float32(self.scale), dtype=np.float32)

    def __repr__(self) -> str:
        _, height, width = self.train_images.shape
        return (
            f"Dataset({self.name!r}: {len(self.train_images)} train and {len(self.test_images)} test images "
            f"of {height}x{width}, {self.classes} classes, source: {self.source})"
        )


def _shown(array: NDArray[np.generic]) -> str:
    return f"{array.dtype}{list(array.shape)}"
