"""Reading a loss from the device without making the device wait.

`loss.item()` waits until everything is done that was launched before, so after a backward pass for all of it, and the
device has nothing to do while the host decides. Here the loss is copied to the host's memory as soon as the forward has
computed it, and it is read while the device is busy with the backward.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LossReader"]


class LossReader:
    """The loss of one gradient pass at a time: `note` it after the forward, `read` it after the backward's launch."""

    def __init__(self) -> None:
        self._host: Tensor | None = None
        """In memory that a GPU can write to by itself; of the loss's own type, which would be converted first."""
        self._events: dict[torch.device, torch.cuda.Event] = {}
        self._copied: torch.cuda.Event | None = None
        """What says that the copy is there; None if none was asked for."""

    def note(self, loss: Tensor) -> None:
        """Start to copy a loss that was just computed; on other devices than a GPU there is nothing to gain."""
        if not loss.is_cuda or type(loss) is not Tensor:
            return
        if self._host is None or self._host.dtype is not loss.dtype:
            self._host = torch.empty((), dtype=loss.dtype, pin_memory=True)
        device = loss.device
        if device not in self._events:
            self._events[device] = torch.cuda.Event()  # type: ignore[no-untyped-call]
        found = loss.detach()
        self._host.copy_(found if found.dim() == 0 else found.reshape(()), non_blocking=True)
        self._copied = self._events[device]
        self._copied.record(torch.cuda.current_stream(device))

    def read(self, loss: Tensor) -> float:
        """The loss as a number; the one that was noted, if one was since the last time."""
        copied, self._copied = self._copied, None
        if copied is None or self._host is None:
            return loss.item()
        copied.synchronize()
        return self._host.item()

    def forget(self) -> None:
        """Nothing will be read: the gradient pass has failed."""
        self._copied = None
