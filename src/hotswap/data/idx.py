"""The idx format: how MNIST and its relatives store arrays, in four files each.

byte 0, 1       zero
byte 2          element type; 0x08 is unsigned byte, the only one used here
byte 3          number of dimensions, d
4 d bytes       the dimensions, big-endian 32-bit integers
the rest        the elements, last dimension fastest
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hotswap.data.dataset import Dataset
from hotswap.data.obtain import Obtained
from hotswap.data.sources import RawFile
from hotswap.errors import DataError

__all__ = ["build_idx", "dataset_of_idx", "parse_idx"]

_UNSIGNED_BYTE = 0x08


def parse_idx(raw: bytes, *, ndim: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes.

    Args:
        raw: The whole file, not compressed.
        ndim: How many dimensions it must have: 3 for images, 1 for labels.

    Returns:
        A fresh, writable array with the shape that the file states.

    Raises:
        DataError: The first four bytes are others, or the length is not what the header promises.
    """
    magic = bytes((0, 0, _UNSIGNED_BYTE, ndim))
    if raw[:4] != magic:
        raise DataError(
            f"This is not an idx file of unsigned bytes with {ndim} dimensions: "
            f"it begins with {raw[:4].hex()}, not {magic.hex()}."
        )
    start = 4 + 4 * ndim
    if len(raw) < start:
        raise DataError(f"An idx file ends inside its header: {len(raw)} bytes of {start}.")
    shape = tuple(int(size) for size in np.frombuffer(raw, dtype=">u4", count=ndim, offset=4))
    promised = start + math.prod(shape)
    if len(raw) != promised:
        raise DataError(f"An idx file of shape {shape} must have {promised} bytes, and this has {len(raw)}.")
    # The copy is writable, as torch.from_numpy wants it; a view of `raw` would not be.
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy()


def build_idx(array: NDArray[np.uint8]) -> bytes:
    """Write an array as an idx file: the inverse of `parse_idx`, byte for byte."""
    header = bytes((0, 0, _UNSIGNED_BYTE, array.ndim)) + np.asarray(array.shape, dtype=">u4").tobytes()
    return header + array.tobytes()


def dataset_of_idx(name: str, files: Sequence[RawFile], obtained: Obtained) -> Dataset:
    """Return ten classes of grey images from four idx files: train images and labels, then test images and labels."""
    raw = [obtained.files[file.name] for file in files]
    train_images, train_labels, test_images, test_labels = raw
    return Dataset(
        name=name,
        train_images=parse_idx(train_images, ndim=3),
        train_labels=parse_idx(train_labels, ndim=1).astype(np.int64),
        test_images=parse_idx(test_images, ndim=3),
        test_labels=parse_idx(test_labels, ndim=1).astype(np.int64),
        classes=10,
        scale=255.0,
        source=obtained.source,
    )
