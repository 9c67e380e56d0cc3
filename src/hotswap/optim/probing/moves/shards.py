"""Sharded tensors, of which each process holds a part (DTensor, as FSDP makes them)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ORDINARY", "local", "sharded_like"]

ORDINARY = (Tensor, torch.nn.Parameter)
"""The types of tensors that are not sharded, and of nearly all that there are: a quick answer for `local`."""


def local(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor, in the same memory; any other tensor itself."""
    if type(tensor) in ORDINARY:
        return tensor
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def sharded_like(owner: Tensor, part: Tensor) -> Tensor:
    """The reverse: `part`, in the same memory, as a tensor that is sharded as `owner` is."""
    if local(owner) is owner:
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 (slow to import, and few need it)

    assert isinstance(owner, DTensor)  # no other type has a local part
    return DTensor.from_local(
        part, owner.device_mesh, owner.placements, run_check=False, shape=owner.shape, stride=owner.stride()
    )
