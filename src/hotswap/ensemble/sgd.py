"""Stochastic gradient descent with momentum, each run with settings of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hotswap.ensemble.engine import Update
from hotswap.ensemble.model import Model, MomentumGroup

__all__ = ["Sgd"]


class Sgd(Update):
    """`v ← μv − αg; θ ← θ + v` with the rate inside the velocity, as in the paper's time, and α ← αη every epoch.

    Runs with equal momentum must stand together, those without any last (see `order`).
    """

    openings = frozenset({"step", "watched step"})
    NORM_EVERY = 8  # steps of a watched epoch; the update itself never has its gradient, so a norm costs another pass

    def __init__(
        self, model: Model, theta: Tensor, rates: Sequence[float], decays: Sequence[float], momenta: Sequence[float]
    ) -> None:
        super().__init__(model, theta, sums=("mean_lr",))
        self.first = torch.tensor(rates, dtype=torch.float64)
        self.decays = torch.tensor(decays, dtype=torch.float64)
        self.groups = _groups(momenta)
        self.rates = torch.zeros(len(theta), dtype=theta.dtype, device=theta.device)
        self.velocity = torch.zeros_like(theta[: sum(momentum != 0 for momentum in momenta)])

    @staticmethod
    def order(momenta: Sequence[float]) -> list[int]:
        """An order of the runs that puts equal momenta together, none last."""
        return sorted(range(len(momenta)), key=lambda run: (-momenta[run], run))

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """See `Update.begin_epoch`."""
        super().begin_epoch(epoch, watched=watched)
        self.rates.copy_(self.first * self.decays**epoch)

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"step": self._step, "watched step": self._watched_step}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("watched step" if self.watched and number % self.NORM_EVERY == 0 else "step")

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.tally.sums["mean_lr"] += self.rates
        self.model.descend(self.theta, self.velocity, self.rates, self.groups, x, y)

    def _watched_step(self, x: Tensor, y: Tensor) -> None:
        self.tally.norm += self.model.gradient_norm(self.theta, x, y)
        self.tally.norms += 1
        self._step(x, y)

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        return {"theta": self.theta, "velocity": self.velocity}


def _groups(momenta: Sequence[float]) -> list[MomentumGroup]:
    if list(momenta) != sorted(momenta, reverse=True):
        raise ValueError("runs must be ordered by momentum, large to small; see Sgd.order")
    groups, start = [], 0
    for end in range(1, len(momenta) + 1):
        if end == len(momenta) or momenta[end] != momenta[start]:
            groups.append(MomentumGroup(slice(start, end), momenta[start]))
            start = end
    return groups
