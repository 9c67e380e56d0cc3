"""What algorithms share that choose among learning rates."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.arms import log_grid
from hotswap.studies.algorithms.base import Family
from hotswap.studies.specification.settings import COUNT, POSITIVE, Check, one

__all__ = ["RatesFamily"]


@dataclass(frozen=True, kw_only=True)
class RatesFamily(Family):
    """A grid of rates.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
    """

    high: float = one(POSITIVE, 1e2, help="the largest rate")
    low: float = one(POSITIVE, 1e-6, help="the smallest rate")
    count: int = one(COUNT, 33, help="how many rates, evenly spaced on a logarithmic scale")

    def check(self, check: Check) -> None:
        """See `Settings.check`."""
        if self.low > self.high or (self.low == self.high and self.count > 1):
            raise check.error("low", f"is {self.low!r}; it must be smaller than high, which is {self.high!r}.")
        if len(set(self.rates)) < self.count:
            raise check.error("count", f"is {self.count}; there are not so many different rates from high to low.")

    @property
    def rates(self) -> tuple[float, ...]:
        """The arms, from large to small."""
        return log_grid(self.high, self.low, self.count)

    def arms(self) -> tuple[float, ...]:
        """See `Family.arms`."""
        return self.rates
