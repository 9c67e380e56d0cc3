"""What every bandit is: frozen settings, and pure functions from one state to the next.

Shapes: R runs, K arms, T trials of one step. An optimizer is the case R = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from hotswap.arrays import Array, Device, added_at, namespace, zeros
from hotswap.errors import CheckpointError
from hotswap.generators import generators
from hotswap.states import arrays_of, replaced

__all__ = ["FORGOTTEN", "Bandit", "BanditState"]

FORGOTTEN = 1e-290  # a count below this is so near the smallest float64 that dividing by it gives no mean any more


class BanditState(NamedTuple):
    """What a bandit remembers. float64: counts decay towards 0, and in float32 they would underflow."""

    rewards: Array
    """`(R, K)` float64: the (discounted) sum of the rewards of each arm."""
    counts: Array
    """`(R, K)` float64: the (discounted) number of trials of each arm."""
    step: Array
    """`(R,)` int64: t, the number of proposals made."""

    @property
    def tried(self) -> Array:
        """`(R, K)`: which arms have a mean. One that was tried too long ago is forgotten, as if it never had been."""
        return self.counts > FORGOTTEN

    @property
    def means(self) -> Array:
        """`(R, K)`: the mean reward of each arm, 0 where it has none."""
        tried = self.tried
        return namespace(tried).where(tried, self.rewards, 0.0) / namespace(tried).where(tried, self.counts, 1.0)


class Bandit(ABC):
    """Proposes the arm a step starts from, and learns from every arm that was tried.

    Nothing here waits for the device: no value is read back, so the same code runs inside a CUDA graph.
    """

    def start(self, runs: int, arms: int, device: Device = None) -> BanditState:
        """The state before the first step (Algorithm 2, lines 2 to 4): in NumPy, or on a torch device."""
        return BanditState(
            zeros((runs, arms), "float64", device),
            zeros((runs, arms), "float64", device),
            zeros((runs,), "int64", device),
        )

    state_version: ClassVar[int] = 1

    def begin(self, runs: int, arms: int, device: Device = None, seeds: Sequence[int] | None = None) -> Any:
        """`start`, with a field called `generator` seeded."""
        state = self.start(runs, arms, device)
        if seeds is not None and "generator" in arrays_of(state):
            state = replaced(state, generator=generators(seeds, device))
        return state

    def migrate(self, arrays: dict[str, Array], version: int) -> dict[str, Array]:
        """The arrays of a state of another version, as those of this one."""
        raise CheckpointError(
            f"The checkpoint's bandit state has version {version}, and {type(self).__name__} reads "
            f"{self.state_version} only."
        )

    def counts(self, state: Any) -> Array:
        """`(R, K)`: how often each arm was tried."""
        return state.counts

    def means(self, state: Any) -> Array:
        """`(R, K)`: the mean reward of each arm."""
        return state.means

    @abstractmethod
    def propose(self, state: BanditState) -> tuple[Array, BanditState]:
        """The arm `(R,)` to start from, and the state after proposing it."""

    @abstractmethod
    def index(self, state: BanditState) -> Array:
        """What the policy chooses by, `(R, K)`, as things stand; a proposal first lets the past fade a little more."""

    def observe(self, state: BanditState, arm: Array, reward: Array, tried: Array | None = None) -> BanditState:
        """The state after trials of `arm` `(R, T)` earned `reward` `(R, T)` (Algorithm 3, GrantReward).

        `tried` `(R, T)` marks the entries that happened; without it, all of them did. Lists of lists will do where the
        state is in NumPy.
        """
        ones = [[1.0] * len(row) for row in arm] if isinstance(arm, list) else namespace(reward).ones_like(reward)
        return BanditState(
            rewards=added_at(state.rewards, arm, reward, tried),
            counts=added_at(state.counts, arm, ones, tried),
            step=state.step,
        )
