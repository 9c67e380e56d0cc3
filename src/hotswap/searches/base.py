"""The interface of searches: frozen settings, and a state machine over `(R,)` arrays, one value per run.

    walk = search.begin(proposal, loss_before, arms=K)
    while not walk.done.all():
        walk = search.observe(walk, loss at walk.arm)
    chosen = search.choose(walk)                              # −1 where the run does not move

The functions are pure and read nothing back from the device; runs that are done ignore what they are shown.

A walk is any named tuple or dataclass of `(R,)` arrays with the fields `arm`, the arm to try next, and `done`, whether
the walk has ended. It may go to any arm, upwards too. An optimizer has one run, and plain numbers in place of arrays:
the functions that `hotswap.arrays.namespace` gives work for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NoReturn, TypeAlias

from hotswap.arrays import Array, places
from hotswap.errors import SettingError
from hotswap.registry import Registry

__all__ = ["MOST_TRIALS", "SEARCHES", "AnyWalk", "Search", "check_max_trials", "is_whole", "refuse_endless"]

MOST_TRIALS = 10
"""The most trials of each arm in one step. A search that goes on beyond this number will never end."""

AnyWalk: TypeAlias = Any
"""A named tuple or dataclass of `(R,)` arrays with the fields `arm` and `done`."""


class Search(ABC):
    """Decides which arms a step tries, from the proposed one on, and which of them it takes.

    `hotswap.testing.check_search` checks a search of your own.
    """

    tries: ClassVar[bool] = True
    """Whether the search's walks have trials. A step without any costs little more than one of the base optimizer."""
    needs_slope: ClassVar[bool] = False
    """Whether `observe` has to be told by how much the slope at the start point lets one expect the loss to fall."""

    @abstractmethod
    def begin(self, proposal: Array, loss_before: Array, *, arms: int, row: int | None = None) -> AnyWalk:
        """A walk from `proposal` `(R,)` among `arms` arms, before its first trial.

        `loss_before` `(R,)`, float64, is the loss that trials have to beat. With several hyperparameters, arms come in
        rows of `row`: within a row only the rate changes, and a walk stays in the row of its proposal.
        """

    @abstractmethod
    def observe(self, walk: AnyWalk, loss: Array, expected: Array | None = None) -> AnyWalk:
        """The walk after the trial of `walk.arm` gave `loss` `(R,)`, float64; it stays as it is where it is done.

        `expected` `(R,)`, float64, is ⟨g, θ − θ′⟩, by how much the loss would fall from θ to the trial's θ′ if it were
        linear. It is given to searches with `needs_slope` only, so that others may leave the argument out.
        """

    @abstractmethod
    def choose(self, walk: AnyWalk) -> Array:
        """The arm `(R,)` that a finished walk takes; −1 where the parameters stay as they are."""

    def foresee(self, walk: AnyWalk, count: int) -> Array:
        """`(R, count)`: the arms that the walk would try if it goes on, beginning with `walk.arm`.

        Only a hint: an ensemble evaluates these arms together, because that is faster than one after the other, and
        discards those to which the walk does not come.
        """
        return walk.arm[:, None] + 0 * places(count, walk.arm)


def refuse_endless(search: Search, trials: int) -> NoReturn:
    """Raise about a search whose walk does not end."""
    raise SettingError(
        f"{type(search).__name__} has not ended after {trials} trials in one step; `observe` must set `done` at some "
        "point. hotswap.testing.check_search says more."
    )


SEARCHES: Registry[type[Search]] = Registry("search")
"""Every search that a study's file can name."""


def is_whole(number: object) -> bool:
    """Whether a value is a whole number; True and False are not."""
    return isinstance(number, int) and not isinstance(number, bool)


def check_max_trials(search: object, max_trials: int | None) -> None:
    """Refuse a `max_trials` that is not a whole number of at least 1, or None."""
    if max_trials is not None and (not is_whole(max_trials) or max_trials < 1):
        raise SettingError(
            f"{type(search).__name__}(max_trials={max_trials!r}): max_trials must be a whole number of at least 1, "
            "or None."
        )
