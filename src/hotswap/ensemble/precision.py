"""The precision of float32 products on a GPU; torch has one switch for matrix products and one for convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["allow_tf32", "full_float32"]


def allow_tf32(allowed: bool) -> None:
    """Let matrix products and convolutions round their factors to TF32 (10 bits of mantissa), or forbid it.

    Torch by itself forbids it in matrix products and allows it in convolutions.
    """
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute in full float32 inside the block, and as before after it."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    allow_tf32(False)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
