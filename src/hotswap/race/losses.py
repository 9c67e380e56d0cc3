"""Losses as a race takes them: single real numbers, which stay on their device until a turn ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hotswap.errors import LossError

__all__ = ["checked", "copied", "mean", "single"]


def checked(loss: Any) -> Tensor | float | None:
    """A loss as a single real number; None stays None.

    Raises:
        LossError: It is no single real number.
    """
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise LossError(
                f"The loss has the shape {tuple(loss.shape)}, and lanes are judged by single numbers; give its mean, "
                "such as loss.mean()."
            )
        if loss.is_complex():
            raise LossError("The loss is complex, and lanes are judged by real numbers; give its absolute value.")
        return loss
    if loss is None:
        return None
    if isinstance(loss, int | float):
        return float(loss)
    raise LossError(f"The loss is {loss!r}, and must be a tensor with one number, or a number.")


def copied(loss: Tensor | float) -> Tensor | float:
    """A copy of a loss, which later passes cannot change, as a replayed CUDA graph would."""
    if not isinstance(loss, Tensor):
        return float(loss)
    copy = loss.detach().to(torch.float32, copy=True)
    return copy.reshape(()) if copy.ndim else copy


def mean(losses: Sequence[Tensor | float]) -> Tensor:
    """The mean of the finite losses: a loss of a step that a scaler skips is not finite."""
    device = next((loss.device for loss in losses if isinstance(loss, Tensor)), None)
    values = torch.stack([torch.as_tensor(loss, dtype=torch.float32, device=device) for loss in losses])
    return torch.where(values.isfinite(), values, math.nan).nanmean()


def single(value: object) -> float | None:
    """A value as one real number; None if it is none."""
    if isinstance(value, str | bytes) or value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return None
