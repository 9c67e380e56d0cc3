"""The schedule of a race: lanes warm up in their own steps, and all rates fall to zero by the run's end."""

from __future__ import annotations

__all__ = ["DECAY_FROM", "factor", "warmup_of"]

WARMUP, LONGEST_WARMUP = 0.02, 100
"""Share of the run over which a lane warms up, and the most steps of it; half of them without a length."""

DECAY_FROM = 0.0
"""Share of the run after which the linear decay begins."""


def warmup_of(total: int | None) -> int:
    """The number of its own steps in which a lane warms up."""
    return LONGEST_WARMUP // 2 if total is None else max(1, min(LONGEST_WARMUP, round(WARMUP * total)))


def factor(step: int, lane_step: int, total: int | None, decay: tuple[float, int] | None = None) -> float:
    """The factor by which a lane's rate is multiplied.

    Args:
        step: steps that the run has taken.
        lane_step: steps that the lane has taken.
        total: steps of the whole run, if they are known.
        decay: the step at which the rates begin to fall, and the step at which they are zero.
    """
    rising = 1.0 if lane_step >= LONGEST_WARMUP else min(1.0, (lane_step + 1) / warmup_of(total))
    if decay is None:
        return rising
    begin, end = decay
    falling = (end - step) / max(1, end - begin)
    return rising * min(1.0, max(0.0, falling))
