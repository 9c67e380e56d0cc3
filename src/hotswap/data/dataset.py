"""The data set that every loader returns: images and labels, split into train and test."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hotswap.errors import SettingError

__all__ = ["Dataset"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """Images of `classes` classes, as they were published: integers, unshuffled, not normalised.

    Colours come last, as in picture files and as everything that shows pictures wants them; inputs of networks have
    them first, because that is what PyTorch's convolutions take.

    Attributes:
        name: The name it is loaded by, such as `"mnist"`.
        train_images: `(N, H, W)` uint8, or `(N, H, W, C)` in colour, from 0 to `scale`.
        train_labels: `(N,)` int64, from 0 to `classes - 1`.
        test_images: `(M, H, W)` or `(M, H, W, C)` uint8, with the same sizes.
        test_labels: `(M,)` int64.
        classes: How many classes there are.
        scale: The pixel value that means 1.0.
        source: The source of the bytes this time, in words and without a path.
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
                f"width of train_images, and as many colours, which are {_shown(self.train_images)}."
            )

    def _check_split(self, split: str, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
            raise SettingError(
                f"Dataset({split}_images={_shown(images)}): {split}_images must be uint8 of shape (N, H, W), or "
                f"(N, H, W, C) in colour, none of them 0."
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
        """Numbers of one image, `C * H * W`: the width of a perceptron's input."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        """One image as a convolution sees it: `(C, H, W)`, where grey images have one colour."""
        height, width, *colours = self.train_images.shape[1:]
        return (colours[0] if colours else 1, height, width)

    def train_inputs(self, *, flat: bool = True) -> NDArray[np.float32]:
        """Return the train images as float32 in [0, 1], a fresh array.

        Args:
            flat: As rows `(N, C * H * W)`, for perceptrons; otherwise as `(N, C, H, W)`, for convolutions. Both have
                the numbers of an image in the same order.
        """
        return self._as_inputs(self.train_images, flat)

    def test_inputs(self, *, flat: bool = True) -> NDArray[np.float32]:
        """Return the test images in the form of `train_inputs`, a fresh array."""
        return self._as_inputs(self.test_images, flat)

    def with_own_labels(self) -> Dataset:
        """The same, with labels that can be written to.

        Arrays that lie in memory that processes share cannot be, which torch warns of when it makes tensors of them.
        """
        return replace(self, train_labels=self.train_labels.copy(), test_labels=self.test_labels.copy())

    def _as_inputs(self, images: NDArray[np.uint8], flat: bool) -> NDArray[np.float32]:
        colours_last = images if images.ndim == 4 else images[..., None]
        colours_first = colours_last.transpose(0, 3, 1, 2)
        # Dividing (not multiplying by 1/scale) makes the brightest pixel exactly 1.0.
        inputs = np.divide(colours_first, np.float32(self.scale), dtype=np.float32, order="C")
        return inputs.reshape(len(images), -1) if flat else inputs

    def __repr__(self) -> str:
        size = "x".join(str(number) for number in self.train_images.shape[1:])
        return (
            f"Dataset({self.name!r}: {len(self.train_images)} train and {len(self.test_images)} test images "
            f"of {size}, {self.classes} classes, source: {self.source})"
        )


def _shown(array: NDArray[np.generic]) -> str:
    return f"{array.dtype}{list(array.shape)}"
