"""TF32 in matrix products and in convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hotswap.ensemble.engine import allow_tf32, full_float32


def switches() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    products, convolutions = switches()
    yield
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = convolutions


def test_both_switches_are_set_and_put_back() -> None:
    allow_tf32(True)
    with full_float32():
        assert switches() == ("highest", False)
    assert switches() == ("high", True)
    allow_tf32(False)
    assert switches() == ("highest", False)
    torch.set_float32_matmul_precision("medium")
    with full_float32():
        pass
    assert switches() == ("medium", False)
