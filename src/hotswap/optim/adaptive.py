"""Adam and its kin as bases: the rates that they get by default, and a look at how they fare with them.

The length of their steps hardly depends on the gradient: the rate decides it alone. A step that is too long may lower
the loss of its own minibatch all the same, which is all that a search sees, and spoil what was learned from others. So
the largest rate that there is to choose from decides more than the search; `python -m benchmarks.adam_grids` compares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from hotswap.arms import log_grid

__all__ = ["TopWatch", "default_rates", "is_adaptive"]

_KIN = (
    torch.optim.Adam,  # AdamW is one
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.SparseAdam,
    torch.optim.RMSprop,
    torch.optim.Adafactor,
)
WINDOW = 100
"""Steps whose losses are averaged."""


def is_adaptive(base: Optimizer) -> bool:
    """Whether a base is Adam or one of its kin. An optimizer of another package counts if its name has "adam" in it."""
    return isinstance(base, _KIN) or "adam" in type(base).__name__.lower()


def default_rates(base: Optimizer) -> tuple[float, ...]:
    """The rates to choose from where nobody says: 17 from 1e-2 to 1e-6 around Adam and its kin, else the paper's."""
    return log_grid(1e-2, 1e-6, 17) if is_adaptive(base) else log_grid()


@dataclass
class TopWatch:
    """Notices a rate that has sat at the top of its grid for long while the loss does not fall.

    Two windows of steps are compared by their mean losses; in both, nine steps of ten must have taken the largest rate.
    """

    steps: int = 0
    at_top: int = 0
    total: float = 0.0
    before: float | None = None
    """The mean loss of the window before, where that was at the top, too."""

    def sees(self, loss: float, *, top: bool) -> bool:
        """Count one step; whether it is time for a word."""
        self.steps, self.at_top, self.total = self.steps + 1, self.at_top + top, self.total + loss
        if self.steps < WINDOW:
            return False
        mean, sat = self.total / WINDOW, self.at_top >= 0.9 * WINDOW
        found = sat and self.before is not None and mean >= self.before
        self.steps, self.at_top, self.total, self.before = 0, 0, 0.0, mean if sat else None
        return found
