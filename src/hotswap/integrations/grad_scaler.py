"""torch's GradScaler, which cannot step a hot-swapped optimizer: `hotswap.optim` imports this when it is asked."""

from __future__ import annotations

from types import FrameType

import torch

from hotswap.errors import UnsupportedError

__all__ = ["refuse"]


def refuse(asker: FrameType) -> None:
    """Raise if the code that asks whether an optimizer supports scaling is a GradScaler about to step it.

    Lightning asks the same question of every optimizer that it clips gradients for, and tools that list attributes
    read them all. The question is the only thing that a GradScaler does to an optimizer before it steps, so the asker
    has to be looked at.
    """
    if isinstance(asker.f_locals.get("self"), torch.amp.GradScaler):
        raise UnsupportedError(
            "HotSwap cannot be stepped by a GradScaler: it scales one loss, but not those of trials. Train in bfloat16 "
            "with torch.autocast, which needs no scaler, or give the optimizer loss_scale=65536 for float16; and call "
            "optimizer.step(closure) directly."
        )
