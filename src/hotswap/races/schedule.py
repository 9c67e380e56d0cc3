"""The schedule of a race: by what factor all rates are scaled, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hotswap.errors import SettingError

__all__ = ["Schedule"]

WARMUP_STEPS = 12
"""Of a run whose length nobody knows."""


@dataclass(frozen=True)
class Schedule:
    """Rates rise in a straight line, stay, and fall in a straight line to 0.

    total_steps: how long the run is; None if nobody knows, and then rates do not fall.
    warmup: over which share of all steps they rise; None or 0 for not at all.
    decay: over which share of them, the last ones, they fall; None or 0 for not at all.
    """

    total_steps: int | None
    warmup: float | None = 0.01
    decay: float | None = 0.4

    def __post_init__(self) -> None:
        for name, share in (("warmup", self.warmup), ("decay", self.decay)):
            number = isinstance(share, int | float) and not isinstance(share, bool)
            if share is not None and not (number and 0 <= share <= 1):
                raise SettingError(
                    f"Race({name}={share!r}): {name} must be a share of all steps between 0 and 1, or None for none."
                )
        if (self.warmup or 0) + (self.decay or 0) > 1:
            raise SettingError(
                f"Race(warmup={self.warmup!r}, decay={self.decay!r}): together they are longer than the run."
            )

    @property
    def is_constant(self) -> bool:
        """Whether rates neither rise nor fall."""
        return not self.warmup and (not self.decay or self.total_steps is None)

    def factor(self, step: int, begun: int = 0) -> float:
        """What the rates of a step are multiplied by; steps are counted from 0.

        The race began at step `begun`, where rates begin to rise.
        """
        return min(self._rise(step - begun), self._fall(step))

    def _rise(self, step: int) -> float:
        if not self.warmup:
            return 1.0
        steps = WARMUP_STEPS if self.total_steps is None else max(1, math.ceil(self.warmup * self.total_steps))
        return min(1.0, (step + 1) / steps)

    def _fall(self, step: int) -> float:
        if not self.decay or self.total_steps is None:
            return 1.0
        return min(1.0, max(0.0, (self.total_steps - step) / max(1.0, self.decay * self.total_steps)))
