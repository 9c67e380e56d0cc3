"""Whether operations are recorded for a backward, switched at little cost."""

from __future__ import annotations

import torch

__all__ = ["grad_mode"]


class grad_mode:  # noqa: N801 (used as a function)
    """Inside, operations are recorded or not, as `torch.enable_grad` and `torch.no_grad` have it.

    These may be decorators as well, and look for a compiler, which takes four times as long, in every step.
    """

    __slots__ = ("_before", "_enabled")

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(self._enabled)

    def __exit__(self, *_: object) -> None:
        torch._C._set_grad_enabled(self._before)
