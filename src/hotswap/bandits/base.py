"""The interface of bandits: frozen settings, and pure functions from one state to the next.

Shapes: R runs, K arms, T trials of one step. An optimizer is the case R = 1.

A state is any named tuple or dataclass of arrays whose first axis is runs. It belongs to the bandit: an optimizer or an
ensemble only copies, saves and loads its fields, by name. A bandit that draws random numbers keeps its generator in a
field of that name (see `hotswap.generators`), so that training that was interrupted continues exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from hotswap.arms import Arms
from hotswap.arrays import Array, Device, added_at, namespace, places, zeros
from hotswap.errors import CheckpointError, SettingError
from hotswap.generators import generators
from hotswap.registry import Registry
from hotswap.states import State, arrays_of, replaced

__all__ = [
    "BANDITS",
    "FORGOTTEN",
    "Bandit",
    "BanditState",
    "best_two_overlap",
    "check_exploration",
    "mean_rewards",
    "refuse_unless",
    "trials_as_arrays",
    "tried_arms",
    "upper_confidence",
]

FORGOTTEN = 1e-290  # a count below this is so near the smallest float64 that dividing by it gives no mean any more


class BanditState(NamedTuple):
    """Sums that suffice for many bandits. float64: counts decay towards 0, and in float32 they would underflow."""

    rewards: Array
    """`(R, K)` float64: the (discounted) sum of the rewards of each arm."""
    counts: Array
    """`(R, K)` float64: the (discounted) number of trials of each arm."""
    step: Array
    """`(R,)` int64: t, the number of proposals made."""

    @property
    def tried(self) -> Array:
        """See `tried_arms`."""
        return tried_arms(self)

    @property
    def means(self) -> Array:
        """See `mean_rewards`."""
        return mean_rewards(self)


def tried_arms(state: State) -> Array:
    """`(R, K)`: which arms have a mean. One that was tried too long ago is forgotten, as if it never had been."""
    return state.counts > FORGOTTEN


def mean_rewards(state: State) -> Array:
    """`(R, K)`: the mean reward of each arm, 0 where it has none."""
    tried = tried_arms(state)
    xp = namespace(tried)
    return xp.where(tried, state.rewards, 0.0) / xp.where(tried, state.counts, 1.0)


def upper_confidence(rewards: Array, counts: Array, trials: Array, exploration: float) -> Array:
    """`(R, K)`: rewards / counts + sqrt(exploration · log(n) / counts), and +∞ for an arm without a mean.

    `trials` `(R,)` is n; its logarithm is clamped at 0 from below.
    """
    xp = namespace(counts)
    if xp is np and len(counts) == 1 and min(counts[0].tolist()) > FORGOTTEN:  # an optimizer that has tried all arms
        n = trials.item()
        log_n = np.log(n) if n > 1 else 0.0  # not math.log, which may differ from NumPy's in the last digit
        return rewards / counts + np.sqrt(exploration * log_n / counts)
    tried = counts > FORGOTTEN
    counts = xp.where(tried, counts, 1.0)
    n = trials[:, None]
    log_n = xp.log(xp.where(n > 1, n, 1.0))
    return xp.where(tried, rewards / counts + xp.sqrt(exploration * log_n / counts), math.inf)


def best_two_overlap(means: Array, widths: Array, known: Array) -> Array:
    """`(R,)`: whether the two arms with the best means overlap, where each reaches `widths` above and below its own.

    All are `(R, K)`. An arm that is not `known` overlaps with all others; a single arm that is known with none.
    """
    xp = namespace(means)
    means, widths = xp.where(known, means, 0.0), xp.where(known, widths, 0.0)
    place = places(means.shape[1], means)
    best = means.argmax(axis=1)[:, None] == place
    second = xp.where(best, -math.inf, means).argmax(axis=1)[:, None] == place
    low = xp.where(best, means - widths, 0.0).sum(axis=1)
    high = xp.where(second, means + widths, 0.0).sum(axis=1)
    unknown = xp.logical_not(known).any(axis=1)
    return unknown | (low <= high) if means.shape[1] > 1 else unknown


def trials_as_arrays(like: Array, arm: Array, reward: Array, tried: Array | None) -> tuple[Array, Array, Array]:
    """The arguments of `Bandit.observe` as arrays `(R, T)`: arms, rewards, and which of the trials happened.

    Rewards of trials that did not happen are 0, whatever they were. Where `like` is in NumPy, they may be lists.
    """
    xp = namespace(like)
    if xp is np:
        arm, reward = np.asarray(arm, dtype=np.int64), np.asarray(reward, dtype=np.float64)
        tried = None if tried is None else np.asarray(tried, dtype=np.bool_)
    happened = xp.ones_like(arm, dtype=xp.bool if xp is not np else np.bool_) if tried is None else tried
    return arm, xp.where(happened, reward, 0.0), happened


def refuse_unless(allowed: bool, bandit: Bandit, name: str, rule: str) -> None:
    """Raise the sentence that the setting called `name` must follow the rule, unless it does.

    Raises:
        SettingError: It does not.
    """
    if not allowed:
        value = getattr(bandit, name)
        raise SettingError(f"{type(bandit).__name__}({name}={value!r}): {name} must be {rule}.")


def check_exploration(bandit: Bandit, exploration: float) -> None:
    """Refuse a weight of confidence widths that cannot be one."""
    allowed = math.isfinite(exploration) and exploration >= 0
    refuse_unless(allowed, bandit, "exploration", "finite and not negative")


class Bandit(ABC):
    """Proposes the arm a step starts from, and learns from every arm that was tried.

    Nothing here waits for the device: no value is read back, so the same code runs inside a CUDA graph.
    `hotswap.testing.check_bandit` checks a bandit of your own.
    """

    state_version: ClassVar[int] = 1
    """The version of the state's fields and their meaning; raise it when they change, and write `migrate`."""

    def start(self, runs: int, arms: int, device: Device = None) -> State:
        """The state before the first step (Algorithm 2, lines 2 to 4): in NumPy, or on a torch device.

        Override it for a state with other fields.
        """
        return BanditState(
            rewards=zeros((runs, arms), "float64", device),
            counts=zeros((runs, arms), "float64", device),
            step=zeros((runs,), "int64", device),
        )

    def begin(self, runs: int, arms: int, device: Device = None, seeds: Sequence[int] | None = None) -> State:
        """`start`, with the field `generator`, where the state has one, seeded with one number for each run.

        Every run of a bandit that draws random numbers has a generator of its own. Without seeds, all are 0.
        """
        state = self.start(runs, arms, device)
        seeds = [0] * runs if seeds is None else seeds
        if len(seeds) != runs:
            raise SettingError(
                f"{type(self).__name__}: there are {len(seeds)} seeds for {runs} runs; give one for each."
            )
        return replaced(state, generator=generators(seeds, device)) if "generator" in arrays_of(state) else state

    def knowing(self, arms: Arms) -> Bandit:
        """The same bandit, told what its arms stand for. Most do not ask, and are returned as they are."""
        return self

    @abstractmethod
    def propose(self, state: State) -> tuple[Array, State]:
        """The arm `(R,)` to start from, and the state after proposing it."""

    @abstractmethod
    def index(self, state: State) -> Array:
        """The values `(R, K)` by which the policy chooses now; a proposal first lets the past fade a little more."""

    def observe(self, state: State, arm: Array, reward: Array, tried: Array | None = None) -> State:
        """The state after trials of `arm` `(R, T)` earned `reward` `(R, T)` (Algorithm 3, GrantReward).

        `tried` `(R, T)` marks the entries that happened; without it, all of them did. Lists of lists will do where the
        state is in NumPy. The trials of one step come in one call or in several, in order: what is learned must not
        depend on that. As written here, the fields `rewards` and `counts` grow and all others stay.
        """
        if isinstance(arm, list):  # few trials, in NumPy: both sums in one go
            rewards, counts = state.rewards.copy(), state.counts.copy()
            for run, trials in enumerate(zip(arm, reward, strict=True)):
                for trial, (at, earned) in enumerate(zip(*trials, strict=True)):
                    if tried is None or tried[run][trial]:
                        rewards[run, at] += earned
                        counts[run, at] += 1.0
            return replaced(state, rewards=rewards, counts=counts)
        ones = namespace(reward).ones_like(reward)
        return replaced(
            state,
            rewards=added_at(state.rewards, arm, reward, tried),
            counts=added_at(state.counts, arm, ones, tried),
        )

    def counts(self, state: State) -> Array:
        """`(R, K)`: how often each arm was tried, for tables of statistics; NaN where the state does not count."""
        return state.counts if hasattr(state, "counts") else self._unknown(state)

    def means(self, state: State) -> Array:
        """`(R, K)`: the mean reward of each arm, for tables of statistics; NaN where the state has no such sums."""
        known = hasattr(state, "counts") and hasattr(state, "rewards")
        return mean_rewards(state) if known else self._unknown(state)

    def unsure(self, state: State) -> Array:
        """`(R,)`: whether the two arms with the best means overlap, so that either may be the better one.

        An arm reaches from its mean as far as its index is away from it, upwards and downwards; an arm whose index is
        infinite, because it was never tried, overlaps with all. A bandit that does not know means is always unsure.
        """
        means, index = self.means(state), self.index(state)
        xp = namespace(means)
        return best_two_overlap(means, abs(index - means), xp.isfinite(index) & xp.isfinite(means))

    def _unknown(self, state: State) -> Array:
        index = self.index(state)
        xp = namespace(index)
        return xp.full_like(index, math.nan, dtype=xp.float64)

    def bounds(self, arms: int) -> dict[str, tuple[float, float]]:
        """The least and the greatest value that a field of a state of so many arms can have, by name.

        A saved state with other values is refused. As written here, the fields `counts` and `step` begin at 0.
        """
        return {"counts": (0, math.inf), "step": (0, 2**62)}

    def migrate(self, arrays: dict[str, Array], version: int) -> dict[str, Array]:
        """The arrays of a state that `version` of this bandit saved, as the present version names and means them.

        Raises:
            CheckpointError: That version cannot be read; unless it is overridden, no other version can.
        """
        raise CheckpointError(
            f"The checkpoint holds version {version} of the state of {type(self).__name__}, which now reads only "
            f"version {self.state_version}; load it with the code that saved it, or start afresh."
        )

    def restored(self, state: State, arrays: Mapping[str, Array], version: int = 1) -> State:
        """`state` with the saved arrays in its fields, by name; `version` is the `state_version` that saved them.

        Raises:
            CheckpointError: The names or the shapes are not those of this bandit's state.
        """
        saved = dict(arrays)
        if version != self.state_version:
            saved = self.migrate(saved, version)
        fields = arrays_of(state)
        if fields.keys() != saved.keys():
            raise CheckpointError(
                f"The checkpoint is of another bandit: its state has the fields {_listed(saved)}, but that of "
                f"{type(self).__name__} has {_listed(fields)}; use the bandit that it was saved with."
            )
        for name, array in fields.items():
            if tuple(array.shape) != tuple(saved[name].shape):
                raise CheckpointError(
                    f"The checkpoint is of another size: its bandit's {name} has the shape {tuple(saved[name].shape)}, "
                    f"but {tuple(array.shape)} is needed; use the same number of runs and arms."
                )
        return replaced(state, {name: _in_the_type_of(fields[name], array) for name, array in saved.items()})


def _in_the_type_of(field: Array, array: Array) -> Array:
    return array.astype(field.dtype) if namespace(field) is np else array.to(field.dtype)


def _listed(names: Mapping[str, Array]) -> str:
    return ", ".join(sorted(names)) or "nothing"


BANDITS: Registry[type[Bandit]] = Registry("bandit")
"""Every bandit that a study's file can name."""
