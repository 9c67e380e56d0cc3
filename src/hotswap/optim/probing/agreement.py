"""Agreement over processes: every loss of a search is averaged over them, so that all take the same decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hotswap.errors import SettingError

__all__ = ["Agreement", "ProcessGroup"]

ProcessGroup = Any
"""A process group; None for the default one where there is one; False for none."""


class Agreement:
    """Averages over the processes of a group. Without a group, or in a group of one, nothing is exchanged."""

    def __init__(self, group: ProcessGroup, device: Callable[[], torch.device]) -> None:
        known = group is None or group is False or (dist.is_available() and isinstance(group, dist.ProcessGroup))
        if not known:
            raise SettingError(
                f"HotSwap(process_group={group!r}): process_group must be a torch.distributed process group, None for "
                "the default one, or False for none."
            )
        self.group, self.device = group, device

    def active(self) -> bool:
        """Whether there are other processes to agree with."""
        if self.group is False or not (dist.is_available() and dist.is_initialized()):
            return False
        return dist.get_world_size(self.group) > 1

    def mean(self, loss: Tensor | float) -> float:
        """The mean over all processes, by one all-reduce. NaN in one process is NaN in all."""
        if not self.active():
            return float(loss)
        loss = torch.as_tensor(loss, dtype=torch.float64).detach().reshape(1)
        shared = loss.to(self._device(), copy=True)  # the all-reduce writes to it, and the loss is the user's
        dist.all_reduce(shared, group=self.group)
        return shared.item() / dist.get_world_size(self.group)

    def all(self, holds: bool) -> bool:
        """Whether something holds in all processes."""
        if not self.active():
            return holds
        failures = torch.tensor([0.0 if holds else 1.0], device=self._device())
        dist.all_reduce(failures, group=self.group)
        return failures.item() == 0

    def _device(self) -> torch.device:
        """Where the group's backend wants its tensors."""
        return self.device() if dist.get_backend(self.group) == "nccl" else torch.device("cpu")
