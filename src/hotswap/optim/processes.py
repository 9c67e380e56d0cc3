"""Several processes that train together: the losses that they agree on, and tensors that they share in parts."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from hotswap.errors import SettingError

__all__ = ["ORDINARY", "Agreement", "ProcessGroup", "local", "pieces", "sharded_like"]

ProcessGroup = Any
"""A process group; None for the default one where there is one; False for none."""

DISTRIBUTED = dist.is_available()

ORDINARY = (Tensor, torch.nn.Parameter)
"""The types of tensors that are not sharded, and of nearly all that there are: a quick answer for `local`."""


class Agreement:
    """Averages over the processes of a group, so that all take the same decisions.

    Without a group, or in a group of one, nothing is exchanged.
    """

    def __init__(self, group: ProcessGroup, base: Optimizer) -> None:
        if not (group is None or group is False or (DISTRIBUTED and isinstance(group, dist.ProcessGroup))):
            raise SettingError(
                f"HotSwap(process_group={group!r}): process_group must be a torch.distributed process group, None for "
                "the default one, or False for none."
            )
        self.group: Any = group
        self.base = base
        self.several = False
        """Whether there are other processes to agree with; known since `look`."""

    def look(self) -> None:
        """Find out whether there are other processes: a step begins."""
        known = DISTRIBUTED and self.group is not False and dist.is_initialized()
        self.several = known and dist.get_world_size(self.group) > 1

    def mean(self, loss: Tensor | float) -> float:
        """The mean over all processes, by one all-reduce. NaN in one process is NaN in all."""
        if not self.several:
            return float(loss)
        loss = torch.as_tensor(loss, dtype=torch.float64).detach().reshape(1)
        shared = loss.to(self._device(), copy=True)  # the all-reduce writes to it, and the loss is the user's
        dist.all_reduce(shared, group=self.group)
        return shared.item() / dist.get_world_size(self.group)

    def all(self, holds: bool) -> bool:
        """Whether something holds in all processes."""
        return self.mean(0.0 if holds else 1.0) == 0 if self.several else holds

    def _device(self) -> torch.device:
        """The device of the tensors that the group's backend exchanges."""
        if dist.get_backend(self.group) != "nccl":
            return torch.device("cpu")
        first = next(parameter for group in self.base.param_groups for parameter in group["params"])
        device: torch.device = first.device
        return device


def local(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor, in the same memory; any other tensor itself."""
    if type(tensor) in ORDINARY:
        return tensor
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def pieces(tensor: Tensor) -> int:
    """The number of different parts of a tensor: 1 where every process has all of it.

    Several processes may hold the same part.
    """
    if local(tensor) is tensor:
        return 1
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]  # a DTensor
    return math.prod(mesh.size(axis) for axis, how in enumerate(placements) if not how.is_replicate())


def sharded_like(owner: Tensor, part: Tensor) -> Tensor:
    """The reverse of `local`: `part`, in the same memory, as a tensor that is sharded as `owner` is."""
    if local(owner) is owner:
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 (slow to import, and few need it)

    assert isinstance(owner, DTensor)  # no other type has a local part
    return DTensor.from_local(
        part, owner.device_mesh, owner.placements, run_check=False, shape=owner.shape, stride=owner.stride()
    )
