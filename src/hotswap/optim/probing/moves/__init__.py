"""Candidate updates and the exact way back, in three kinds; `move_for` chooses one."""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from hotswap.arms import Arms
from hotswap.errors import UnsupportedError
from hotswap.optim.probing.moves.base import Move
from hotswap.optim.probing.moves.exact import Exact
from hotswap.optim.probing.moves.scaled import LINEAR_BASES, GradientMove, LinearMove

__all__ = ["Exact", "GradientMove", "LinearMove", "Move", "move_for"]

REFUSED_BASES: dict[type[Optimizer], str] = {
    torch.optim.LBFGS: "LBFGS evaluates the closure itself and searches along its own direction",
    torch.optim.Rprop: "Rprop reads lr on its first step only, so swapping it would change nothing",
    torch.optim.ASGD: "ASGD applies a rate one step after it was set, so a trial could not judge it",
}


def move_for(
    base: Optimizer, arms: Arms, initial_lr: float, linear: bool | None, elsewhere: frozenset[str] = frozenset()
) -> Move:
    """The cheapest move that is exact for this base and these arms; those named in `elsewhere` do not move anything."""
    for refused, reason in REFUSED_BASES.items():
        if isinstance(base, refused):
            raise UnsupportedError(f"HotSwap cannot wrap {type(base).__name__}: {reason}.")
    if set(arms.names) - elsewhere == {"lr"} and linear is not False:
        if type(base) is torch.optim.SGD:
            return GradientMove(base, arms, initial_lr, elsewhere=elsewhere)
        if linear or type(base) in LINEAR_BASES:
            return LinearMove(base, arms, initial_lr, elsewhere=elsewhere)
    return Exact(base, arms, initial_lr, elsewhere=elsewhere)
