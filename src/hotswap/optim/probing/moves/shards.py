"""Sharded tensors, of which each process holds a part (DTensor, as FSDP makes them)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["ORDINARY", "local", "pieces", "sharded_like"]

ORDINARY = (Tensor, torch.nn.Parameter)
"""The types of tensors that are not sharded, and of nearly all that there are: a quick answer for `local`."""


def local(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor, in the same memory; any other tensor itself."""
    if type(tensor) in ORDINARY:
        return tensor
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def pieces(tensor: Tensor) -> int:
    """In how many different parts a tensor is divided among processes: 1 where every process has all of it.

    Several processes may hold the same part.
    """
    if local(tensor) is tensor:
        return 1
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]  # a DTensor
    return math.prod(mesh.size(axis) for axis, how in enumerate(placements) if not how.is_replicate())


def sharded_like(owner: Tensor, part: Tensor) -> Tensor:
    """The reverse: `part`, in the same memory, as a tensor that is sharded as `owner` is."""
    if local(owner) is owner:
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 (slow to import, and few need it)

    assert isinstance(owner, DTensor)  # no other type has a local part
    return DTensor.from_local(
        part, owner.device_mesh, owner.placements, run_check=False, shape=owner.shape, stride=owner.stride()
    )
