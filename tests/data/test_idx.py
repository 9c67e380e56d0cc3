"""The idx format, against bytes written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hotswap.data.idx import build_idx, parse_idx
from hotswap.errors import DataError

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
