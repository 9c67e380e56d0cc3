"""Several processes that train one model decide alike."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

__all__ = ["Processes"]


class Processes:
    """The processes of a group; without a group, those of torch's default group, if there is one."""

    def __init__(self, group: Any = None) -> None:
        self.group = group

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all."""
        return self.group is False or not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0

    def mean(self, values: Tensor) -> Tensor:
        """The mean of values over all processes: one all-reduce."""
        if self.group is False or not (dist.is_available() and dist.is_initialized()):
            return values
        size = dist.get_world_size(self.group)
        if size > 1:
            dist.all_reduce(values, group=self.group)
            values /= size
        return values
