"""Numbers, lists, tables and tensors out of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, NoReturn

import torch
from torch import Tensor

from hotswap.errors import CheckpointError
from hotswap.optim.probing.moves.shards import local

__all__ = ["check_list", "check_number", "check_table", "check_tensor", "is_number", "refuse", "said"]


def refuse(where: str, rule: str) -> NoReturn:
    """Raise the sentence that something in the checkpoint must be something else."""
    raise CheckpointError(f"The checkpoint is damaged: {where} must be {rule}. Nothing was changed; load another one.")


def said(error: Exception) -> str:
    """What an error says, in one line and not for long."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text[:200]}"


def is_number(value: object) -> bool:
    """Whether a value is a real number, or a tensor of one; True and False are none."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dtype != torch.bool and not value.is_complex() and not value.is_meta
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_number(
    value: Any,
    where: str,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    finite: bool = True,
    whole: bool = False,
) -> None:
    """A number between two others, both included, and finite unless that is not asked for; NaN is never one."""
    words = f"{'a whole' if whole else 'a finite' if finite else 'a'} number"
    if math.isfinite(least) and math.isfinite(most):
        words += f" from {least:g} to {most:g}"
    elif math.isfinite(least):
        words += f" of at least {least:g}"
    too_large = isinstance(value, int) and abs(value) >= 2**63  # for a tensor
    number = float(value) if is_number(value) and not too_large else math.nan
    right_kind = not whole or isinstance(value, int)
    if not right_kind or not least <= number <= most or (finite and not math.isfinite(number)):
        plain = is_number(value) or isinstance(value, str | bool | None)
        refuse(where, f"{words}, not {shortened(value) if plain else f'of type {type(value).__name__}'}")


def check_table(value: object, where: str) -> Mapping[Any, Any]:
    """A dictionary."""
    if not isinstance(value, Mapping):
        refuse(where, f"a dictionary, not of type {type(value).__name__}")
    return value


def check_list(value: object, where: str, length: int | None = None) -> list[Any]:
    """A list or tuple, of so many items where that is known."""
    if not isinstance(value, list | tuple):
        refuse(where, f"a list, not of type {type(value).__name__}")
    if length is not None and len(value) != length:
        refuse(where, f"a list of {length}, not of {len(value)}")
    return list(value)


def check_tensor(
    value: object, where: str, shape: tuple[int, ...] | None = None, *, floating: bool | None = None
) -> Tensor:
    """A tensor of real numbers that are there, of a shape and of floating numbers or whole ones where that is known."""
    if not isinstance(value, Tensor):
        refuse(where, f"a tensor, not of type {type(value).__name__}")
    if value.is_meta or value.layout is not torch.strided or value.is_quantized or value.is_complex():
        refuse(where, "an ordinary tensor of real numbers")
    if shape is not None and tuple(value.shape) != shape:
        refuse(where, f"of the shape {shape}, as this model has it, not {tuple(value.shape)}")
    if floating is not None and (value.dtype == torch.bool or value.is_floating_point() != floating):
        refuse(where, f"of {'floating' if floating else 'whole'} numbers, not {value.dtype}")
    return local(value)
