"""What a step's trials must share, and must not change: random numbers and buffers."""

from hotswap.optim.guards.guard import Guard

__all__ = ["Guard"]
