"""Hyperparameters that are not the base optimizer's: a function of the user's sets each of them.

    HotSwap(base, {"lr": log_grid(), "dropout": [0.0, 0.2, 0.5]}, setters={"dropout": set_dropout})

The optimizer alone calls these functions, so that it always knows what is set: when it is constructed, with the
values of the smallest arm, and then before an evaluation or a step that needs other values than are set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from hotswap.arms import Arms, Value
from hotswap.errors import SettingError

__all__ = ["Setter", "Setters", "check_setters"]

Setter = Callable[[Value], object]
"""Sets a hyperparameter to a value."""


class Setters:
    """The user's functions, and the values that they were called with last.

    setters.to(arm)         for a trial of that arm
    setters.back()          as it was before the step
    setters.keep()          or: what is set now stays
    """

    def __init__(self, functions: Mapping[str, Setter], arms: Arms) -> None:
        self.names = frozenset(functions)
        self._functions, self._arms = dict(functions), arms
        self.now: dict[str, Value] = {}
        """The values that are set; one is missing while nobody knows it."""
        self._kept: dict[str, Value] = {}

    def values(self, arm: int) -> dict[str, Value]:
        """The values that an arm sets, by name."""
        return {name: value for name, value in self._arms.values(arm).items() if name in self.names}

    def same(self, arm: int, other: int) -> bool:
        """Whether two arms set the same values."""
        return not self.names or self.values(arm) == self.values(other)

    def to(self, arm: int) -> None:
        """Set an arm's values. Where one of the functions raises, all are set back, as far as they can be."""
        self._set(self.values(arm))

    def back(self) -> None:
        """Set what was kept last."""
        if self.now != self._kept:
            self._set(self._kept)

    def keep(self) -> None:
        """Keep the values that are set now."""
        self._kept = dict(self.now)

    def _set(self, wanted: Mapping[str, Value]) -> None:
        before, called = dict(self.now), []
        try:
            for name, value in wanted.items():
                if name not in self.now or self.now[name] != value:
                    called.append(name)
                    self.now.pop(name, None)  # unknown until the function has returned
                    self._functions[name](value)
                    self.now[name] = value
        except BaseException:
            for name in called:
                if name in before:
                    with suppress(Exception):  # the user has to see the first exception
                        self._functions[name](before[name])
                        self.now[name] = before[name]
            raise


def check_setters(base: str, swappable: Sequence[str], taken: Sequence[str], setters: object, arms: Arms) -> None:
    """Check that arms and setters go together.

    Args:
        base: The base optimizer's class.
        swappable: The names of its hyperparameters that arms can be over.
        taken: All names in its parameter groups.
        setters: What the user has given.
        arms: What is swapped.
    """
    if not isinstance(setters, Mapping):
        raise SettingError(
            f"HotSwap(setters={setters!r}): setters must be functions by name, as in setters={{'dropout': function}}."
        )
    for name, function in setters.items():
        if name in taken:
            raise SettingError(
                f"HotSwap(setters={{{name!r}: ...}}): {base} has {name!r} itself, which needs no setter; leave it out, "
                "or choose another name."
            )
        if not callable(function):
            raise SettingError(
                f"HotSwap(setters={{{name!r}: ...}}): a setter must be a function of one value, but it is of type "
                f"{type(function).__name__}."
            )
        if name not in arms.names:
            raise SettingError(
                f"HotSwap(setters={{{name!r}: ...}}): there are no values for it to choose from; name them, as in "
                f"arms={{'lr': hotswap.log_grid(), {name!r}: [...]}}."
            )
    for name in arms.names:
        if name not in swappable and name not in setters:
            has = f"it has {', '.join(sorted(swappable))}"
            also = f", and there are setters for {', '.join(sorted(setters))}" if setters else ""
            raise SettingError(
                f"HotSwap(arms={{{name!r}: ...}}): {base} has no hyperparameter {name!r} to swap; {has}{also}. What is "
                f"not the optimizer's needs a function that sets it: setters={{{name!r}: function}}."
            )
    if arms.names[-1] in setters:
        raise SettingError(
            f"HotSwap(arms=...): a search would walk along {arms.names[-1]!r}, where the loss at the start point is "
            f"another for each value; add a hyperparameter of {base} to walk along, such as 'lr', or name it last."
        )
