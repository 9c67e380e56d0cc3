"""What every bandit is: frozen settings, and pure functions from one state to the next.

Shapes: R runs, K arms, T trials of one step. An optimizer is the case R = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Bandit", "BanditState"]


class BanditState(NamedTuple):
    """What a bandit remembers. float64: counts decay towards 0, and in float32 they would underflow."""

    rewards: Tensor
    """`(R, K)` float64: the (discounted) sum of the rewards of each arm."""
    counts: Tensor
    """`(R, K)` float64: the (discounted) number of trials of each arm."""
    step: Tensor
    """`(R,)` int64: t, the number of proposals made."""

    @property
    def means(self) -> Tensor:
        """`(R, K)`: the mean reward of each arm, 0 where it was never tried."""
        return torch.where(self.counts > 0, self.rewards / self.counts, 0.0)


class Bandit(ABC):
    """Proposes the arm a step starts from, and learns from every arm that was tried.

    Nothing here waits for the device: no value is read back, so the same code runs inside a CUDA graph.
    """

    def start(self, runs: int, arms: int, device: torch.device | None = None) -> BanditState:
        """The state before the first step (Algorithm 2, lines 2 to 4)."""
        zeros = torch.zeros((runs, arms), dtype=torch.float64, device=device)
        return BanditState(zeros, zeros.clone(), torch.zeros((runs,), dtype=torch.int64, device=device))

    @abstractmethod
    def propose(self, state: BanditState) -> tuple[Tensor, BanditState]:
        """The arm `(R,)` to start from, and the state after proposing it."""

    @abstractmethod
    def index(self, state: BanditState) -> Tensor:
        """What the policy would choose by, `(R, K)`: the largest is proposed next."""

    def observe(self, state: BanditState, arm: Tensor, reward: Tensor, tried: Tensor | None = None) -> BanditState:
        """The state after trials of `arm` `(R, T)` earned `reward` `(R, T)` (Algorithm 3, GrantReward).

        `tried` `(R, T)` marks the entries that happened; without it, all of them did.
        """
        count = torch.ones_like(reward) if tried is None else tried.to(reward.dtype)
        granted = reward if tried is None else torch.where(tried, reward, 0.0)
        return state._replace(
            rewards=state.rewards.scatter_add(1, arm, granted),
            counts=state.counts.scatter_add(1, arm, count),
        )
