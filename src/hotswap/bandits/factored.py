"""One bandit for each hyperparameter, in place of one over all of their combinations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotswap.arms import Arms
from hotswap.arrays import Array, Device, namespace, places, zeros
from hotswap.bandits.base import Bandit, trials_as_arrays
from hotswap.errors import SettingError
from hotswap.states import State, arrays_of, replaced

__all__ = ["FactoredBandit", "FactoredState"]

VERSIONS = 1000  # versions of an axis's state, at most


@dataclass(frozen=True)
class FactoredState:
    """The states of all axes; an array of the first is called `axis0_counts`, say, of the second `axis1_counts`."""

    parts: tuple[State, ...]
    step: Array
    """`(R,)` int64: the number of proposals made."""

    def arrays(self) -> dict[str, Array]:
        """See `hotswap.states`."""
        return {**_named(self.parts), "step": self.step}

    def replaced(self, arrays: Mapping[str, Array]) -> FactoredState:
        """See `hotswap.states`."""
        unknown = arrays.keys() - self.arrays().keys()
        if unknown:
            raise TypeError(f"A factored state has no arrays called {', '.join(sorted(unknown))}.")
        parts = (replaced(part, _of_axis(axis, arrays)) for axis, part in enumerate(self.parts))
        return FactoredState(tuple(parts), arrays.get("step", self.step))


def _named(parts: Sequence[State]) -> dict[str, Array]:
    return {f"axis{axis}_{name}": array for axis, part in enumerate(parts) for name, array in arrays_of(part).items()}


def _of_axis(axis: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
    prefix = f"axis{axis}_"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class FactoredBandit(Bandit):
    """Let one bandit choose the value of each hyperparameter, as if what they are worth added up.

    With K₁, K₂, … values of the hyperparameters, one bandit over all combinations has K₁·K₂·… arms to try. Here
    there are K₁ + K₂ + … : the bandit of each **axis** proposes a value of its own, and what a trial earned is told to
    all of them, each for its own value. That is right where the best value of one hyperparameter depends little on
    the others; where it does depend on them, the axes learn means over what the others did at the time, and may settle
    on a pair of values that is not the best.

    Arms are numbered as in `Arms.values`: the last axis, which the search walks along, varies fastest. The index of
    an arm is the sum of the indices of its values. For tables of statistics the mean of an arm is the average of
    its values' means, and its count the smallest of its values' counts: it cannot have been tried more often. It is
    unsure while one of its axes is.

    The axes **begin** one after the other, the last one first: the others begin when each axis after them has had as
    many steps as it has values. Until then an axis proposes what its bandit would begin with and hears nothing. So
    values are first compared while all others stay as they are, or are the best ones found so far. Would all begin at
    once, two axes with as many values would propose both their first ones, then both their second ones, learn the same
    and go on in step; and every trial with a rate that is far too large would count against the values of all others.

    bandit: the bandit of every axis, or a tuple with one for each.
    shape: how many values each hyperparameter has, in the order of `Arms.axes`; None where `knowing` will tell.
    """

    bandit: Bandit | tuple[Bandit, ...]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        several: object = self.bandit
        if isinstance(several, list):
            object.__setattr__(self, "bandit", tuple(several))
        bandits = self.bandit if isinstance(self.bandit, tuple) else (self.bandit,)
        wrong = [bandit for bandit in bandits if not isinstance(bandit, Bandit)]
        if wrong or not bandits:
            raise SettingError(
                f"FactoredBandit(bandit={self.bandit!r}): bandit must be a hotswap.Bandit object, or a tuple of them."
            )
        if self.shape is None:
            return
        sizes: tuple[object, ...] = tuple(self.shape)
        if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
            raise SettingError(
                f"FactoredBandit(shape={self.shape!r}): shape must be the number of values of each hyperparameter."
            )
        object.__setattr__(self, "shape", sizes)
        if isinstance(self.bandit, tuple) and len(self.bandit) != len(sizes):
            raise SettingError(
                f"FactoredBandit(shape={self.shape!r}): there are {len(self.bandit)} bandits for {len(sizes)} "
                "hyperparameters; give one for each."
            )

    @property
    def axes(self) -> tuple[tuple[Bandit, int], ...]:
        """The bandit of each axis, and how many values that axis has.

        Raises:
            SettingError: The shape is not known yet.
        """
        if self.shape is None:
            raise SettingError(
                "FactoredBandit(shape=None): it has not been told what its arms stand for; give their shape, or call "
                "knowing(arms)."
            )
        bandits = self.bandit if isinstance(self.bandit, tuple) else (self.bandit,) * len(self.shape)
        return tuple(zip(bandits, self.shape, strict=True))

    @property
    def state_version(self) -> int:  # type: ignore[override]  # the version of all axes together
        """1 where the states of all axes are of version 1; else their versions, less 1, as digits to the base 1000."""
        digits = (bandit.state_version - 1 for bandit, _ in self.axes)
        version: int = 1 + sum(digit * VERSIONS**axis for axis, digit in enumerate(digits))
        return version

    def knowing(self, arms: Arms) -> FactoredBandit:
        """See `Bandit.knowing`: each axis's bandit is told of its own hyperparameter.

        Raises:
            SettingError: The arms have another shape.
        """
        shape = tuple(len(axis) for axis in arms.axes)
        if self.shape not in (None, shape):
            raise SettingError(
                f"FactoredBandit(shape={self.shape!r}): the arms have {' and '.join(arms.names)} with {shape} values; "
                "leave the shape out, or give this one."
            )
        bandits = FactoredBandit(self.bandit, shape).axes
        own = (Arms((name,), (axis,)) for name, axis in zip(arms.names, arms.axes, strict=True))
        told = tuple(bandit.knowing(each) for (bandit, _), each in zip(bandits, own, strict=True))
        return FactoredBandit(told, shape)

    def start(self, runs: int, arms: int, device: Device = None) -> FactoredState:
        """See `Bandit.start`."""
        self._check_arms(arms)
        parts = tuple(bandit.start(runs, size, device) for bandit, size in self.axes)
        return FactoredState(parts, zeros((runs,), "int64", device))

    def begin(self, runs: int, arms: int, device: Device = None, seeds: Sequence[int] | None = None) -> FactoredState:
        """See `Bandit.begin`. Each axis has a seed of its own: seed · (number of axes) + axis."""
        self._check_arms(arms)
        seeds, axes = [0] * runs if seeds is None else seeds, self.axes
        parts = tuple(
            bandit.begin(runs, size, device, [int(seed) * len(axes) + axis for seed in seeds])
            for axis, (bandit, size) in enumerate(axes)
        )
        return FactoredState(parts, zeros((runs,), "int64", device))

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        arm, after = 0, []
        for (bandit, size), first, own in zip(self.axes, self._first_steps, state.parts, strict=True):
            place, learned = bandit.propose(own)
            arm = arm * size + place
            after.append(_where(state.step >= first, learned, own))
        return arm, FactoredState(tuple(after), state.step + 1)

    def index(self, state: State) -> Array:
        """See `Bandit.index`."""
        return sum(self._tables(state, "index"))

    def observe(self, state: State, arm: Array, reward: Array, tried: Array | None = None) -> State:
        """See `Bandit.observe`."""
        arm, reward, happened = trials_as_arrays(state.step, arm, reward, tried)
        after = []
        axes = zip(self.axes, self._below, self._first_steps, state.parts, strict=True)
        for (bandit, size), below, first, own in axes:
            hears = happened & (state.step > first)[:, None] if first else happened  # the step was counted already
            after.append(bandit.observe(own, arm // below % size, reward, hears))
        return FactoredState(tuple(after), state.step)

    def counts(self, state: State) -> Array:
        """See `Bandit.counts`: the smallest of the counts of the arm's values."""
        first, *others = self._tables(state, "counts")
        for table in others:
            first = namespace(first).minimum(first, table)
        return first

    def means(self, state: State) -> Array:
        """See `Bandit.means`: the average of the means of the arm's values."""
        return sum(self._tables(state, "means")) / len(self.axes)

    def unsure(self, state: State) -> Array:
        """See `Bandit.unsure`: whether one of the axes is."""
        first, *others = (bandit.unsure(own) for (bandit, _), own in zip(self.axes, state.parts, strict=True))
        for unsure in others:
            first = first | unsure
        return first

    def bounds(self, arms: int) -> dict[str, tuple[float, float]]:
        """See `Bandit.bounds`: those of the axes' states."""
        found = {"step": super().bounds(arms)["step"]}
        for axis, (bandit, size) in enumerate(self.axes):
            found |= {f"axis{axis}_{name}": bounds for name, bounds in bandit.bounds(size).items()}
        return found

    def restored(self, state: State, arrays: Mapping[str, Array], version: int = 1) -> State:
        """See `Bandit.restored`: each axis's bandit reads its own fields, and translates them where it has to."""
        parts = [
            bandit.restored(part, _of_axis(axis, arrays), (version - 1) // VERSIONS**axis % VERSIONS + 1)
            for axis, ((bandit, _), part) in enumerate(zip(self.axes, state.parts, strict=True))
        ]
        read = {name for axis in range(len(parts)) for name in arrays if name.startswith(f"axis{axis}_")}
        others = {name: array for name, array in arrays.items() if name not in read}
        return super().restored(state, {**_named(parts), **others}, self.state_version)

    @property
    def _below(self) -> tuple[int, ...]:
        """The distance in arms to the next value of each axis: the number of combinations of the axes after it."""
        below = [1]
        for _, size in reversed(self.axes[1:]):
            below.insert(0, size * below[0])
        return tuple(below)

    @property
    def _first_steps(self) -> tuple[int, ...]:
        """The step in which each axis begins: that of the last one is 0, then as many later as there are values."""
        first = [0]
        for _, size in reversed(self.axes[1:]):
            first.insert(0, size + first[0])
        return tuple(first)

    def _tables(self, state: State, method: str) -> list[Array]:
        """The results `(R, Kᵢ)` of a method of each axis's bandit, spread over all combinations `(R, K)`."""
        arms = self._below[0] * self.axes[0][1]
        tables = []
        for (bandit, size), below, own in zip(self.axes, self._below, state.parts, strict=True):
            table = getattr(bandit, method)(own)
            tables.append(table[:, places(arms, table) // below % size])
        return tables

    def _check_arms(self, arms: int) -> None:
        sizes = [size for _, size in self.axes]
        if math.prod(sizes) != arms:
            product = " · ".join(map(str, sizes))
            raise SettingError(
                f"FactoredBandit(shape={self.shape!r}): {product} combinations are not {arms} arms; give the number of "
                "values of each hyperparameter, in the order of Arms.axes."
            )


def _where(condition: Array, yes: State, no: State) -> State:
    """A state whose fields come, for each run, from one state or from the other."""
    xp, others = namespace(condition), arrays_of(no)
    return replaced(
        yes,
        {
            name: xp.where(condition.reshape(-1, *(1,) * (len(array.shape) - 1)), array, others[name])
            for name, array in arrays_of(yes).items()
        },
    )
