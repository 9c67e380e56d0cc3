"""Tensors that several processes share: each holds a part."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["local", "shared_like"]

ORDINARY = (Tensor, torch.nn.Parameter)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor that several share, in the same memory; any other as it is."""
    if type(tensor) in ORDINARY:
        return tensor
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def shared_like(owner: Tensor, part: Tensor) -> Tensor:
    """The reverse: `part`, in the same memory, shared as `owner` is; as it is where `owner` is not."""
    if local(owner) is owner:
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 (slow to import, and few need it)

    assert isinstance(owner, DTensor)  # nothing else has a part
    return DTensor.from_local(
        part, owner.device_mesh, owner.placements, run_check=False, shape=owner.shape, stride=owner.stride()
    )
