"""A data set: a function that returns images, in grey or in colour, and their labels."""

import os
from collections.abc import Callable

import numpy as np

from hotswap.data import DATASETS, Dataset


@DATASETS.register("stripes")
def load_stripes(folder: str | os.PathLike[str] | None = None, report: Callable[[str], None] | None = None) -> Dataset:
    """Noisy red images with a bright row or a bright column, for a network to tell apart."""
    random = np.random.default_rng(0)
    images = random.integers(0, 200, (600, 8, 8, 3), dtype=np.uint8)
    labels = random.integers(0, 2, 600)
    for image, label, place in zip(images, labels, random.integers(0, 8, 600), strict=True):
        (image[place] if label else image[:, place])[:, 0] = 255
    return Dataset(
        name="stripes",
        train_images=images[:500],
        train_labels=labels[:500],
        test_images=images[500:],
        test_labels=labels[500:],
        classes=2,
        scale=255.0,
        source="made up",
    )
