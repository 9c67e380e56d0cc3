"""Several processes that train one model: they decide alike, and each keeps the part of a shared tensor that it has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hotswap.errors import SettingError, UnsupportedError

__all__ = ["Processes", "gathered", "is_sharded", "local", "part", "part_of", "reshard", "shared_like"]


class Processes:
    """The processes of a group; without a group, those of torch's default group, if there is one."""

    def __init__(self, group: Any = None) -> None:
        known = group is None or group is False or (dist.is_available() and isinstance(group, dist.ProcessGroup))
        if not known:
            raise SettingError(
                f"Race(process_group={group!r}): give a torch.distributed process group, None for the default one, or "
                "False for none."
            )
        self.group = group

    @property
    def several(self) -> bool:
        """Whether there is more than one process."""
        if self.group is False or not (dist.is_available() and dist.is_initialized()):
            return False
        return dist.get_world_size(self.group) > 1

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all."""
        return not self.several or dist.get_rank() == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum of values over all processes: one all-reduce, none where there is one process."""
        if self.several:
            dist.all_reduce(values, group=self.group)
        return values

    def look(self, losses: Sequence[Tensor], length: int, others: Tensor) -> tuple[list[float], list[float]]:
        """The mean of each loss over the processes that have it, and the sums of other numbers: one all-reduce.

        length: of the lists of losses, in all processes; a process may have fewer losses.
        """
        missing = length - len(losses)
        values = torch.stack([*losses, *others.new_zeros(missing)]) if length else others.new_zeros(0)
        present = others.new_ones(length)
        present[len(losses) :] = 0
        found = self.total(torch.cat([values, present, others])).tolist()
        sums, counts = found[:length], found[length : 2 * length]
        means = [total / count for total, count in zip(sums, counts, strict=True) if count]
        return means, found[2 * length :]


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process has: all of it, unless it is sharded."""
    to_local = getattr(tensor, "to_local", None)
    if to_local is None:
        return tensor.detach()
    with torch.no_grad():
        part: Tensor = to_local()
    return part.detach()


def part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process has; the tensor itself unless it is sharded."""
    return local(tensor) if is_sharded(tensor) else tensor


def is_sharded(tensor: object) -> bool:
    """Whether processes share a tensor."""
    return hasattr(tensor, "placements")


def gathered(part: Tensor, parameter: Any) -> Tensor:
    """All of a tensor that is sharded as a parameter is; the part itself where the parameter is not sharded."""
    if not is_sharded(parameter):
        return part
    dims = [getattr(placement, "dim", None) for placement in parameter.placements]
    whole: Tensor = shared_like(part, parameter, dims, parameter.shape).full_tensor()  # type: ignore[attr-defined]
    return whole


def part_of(whole: Tensor, parameter: Any) -> Tensor:
    """The part of a whole tensor that this process has, where it is sharded as a parameter is."""
    if not is_sharded(parameter):
        return whole
    everywhere: Any = shared_like(whole, parameter, [None] * parameter.device_mesh.ndim, whole.shape)
    return local(everywhere.redistribute(placements=parameter.placements))


def shared_like(part: Tensor, parameter: Any, dims: Sequence[int | None], shape: Sequence[int]) -> Tensor:
    """A sharded tensor of which this process has a part, on the mesh of a parameter.

    dims: along which dimension the tensor is sharded, for each dimension of the mesh; None where it is replicated.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: PLC0415  # slow to import, and rarely needed

    stride = torch.empty(tuple(shape), device="meta").stride()
    placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
    mesh = parameter.device_mesh
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)


def reshard(model: nn.Module) -> None:
    """Let a model that `fully_shard` has sharded forget what it has gathered, which weights written later are not in.

    After a forward pass without gradients it keeps the gathered weights and would use them again.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:  # then no model is sharded
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()
        elif isinstance(module, fsdp.FullyShardedDataParallel):
            raise UnsupportedError(
                "FullyShardedDataParallel flattens the parameters, and a race needs them as they are; shard the model "
                "with torch.distributed.fsdp.fully_shard."
            )
