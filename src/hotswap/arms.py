"""A, the arms: the finite set of hyperparameter values that can be swapped in.

Arms are numbered from 0. With one hyperparameter, arm 0 is its largest value and arm K−1 its smallest. With several,
the arms are every combination, and the one that the search walks along (`lr` where there is one) varies fastest, so
that a walk to the next arm always means *the same setting with a smaller rate*, until its **row** ends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any

from hotswap.errors import SettingError

__all__ = ["MOST_ARMS", "Arms", "Value", "log_grid"]

MOST_ARMS = 10_000
"""The most values of a hyperparameter, and the most arms that one bandit chooses from."""

Value = float | tuple[float, ...]
"""A value of a hyperparameter: a number, or a tuple of numbers like Adam's `betas`."""


def log_grid(high: float = 1e2, low: float = 1e-6, count: int = 33) -> tuple[float, ...]:
    """`count` rates from `high` to `low`, large to small, evenly spaced on a logarithmic scale.

    The default is the grid of the paper's first author's later public port: a quarter of a decade apart.
    """
    call = f"log_grid(high={high!r}, low={low!r}, count={count!r})"
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_ARMS:
        raise SettingError(f"{call}: count must be a whole number of at least 1, and of at most {MOST_ARMS:,}.")
    bounds: dict[str, Any] = {"high": high, "low": low}
    for name, bound in bounds.items():
        if not (isinstance(bound, Real) and 0 < float(bound) < math.inf):
            raise SettingError(f"{call}: {name} must be a positive, finite rate.")
    if high < low:
        raise SettingError(f"{call}: the bounds are reversed; high must not be smaller than low.")
    if count == 1:
        return (float(high),)
    if high == low:
        raise SettingError(f"{call}: {count} different rates need high to be larger than low.")
    top, bottom = math.log10(high), math.log10(low)
    inner = (10 ** (top + (bottom - top) * i / (count - 1)) for i in range(1, count - 1))
    return (float(high), *inner, float(low))  # the ends exactly as given


@dataclass(frozen=True)
class Arms:
    """Every combination of the values of one or more hyperparameters, numbered in walking order.

    `names[-1]` is the hyperparameter the search walks along; `axes[i]` holds the values of `names[i]`.
    Build one with `Arms.of({"lr": log_grid()})`, which checks and sorts what it is given.
    """

    names: tuple[str, ...]
    axes: tuple[tuple[Value, ...], ...]

    @classmethod
    def of(cls, choices: Mapping[str, Iterable[Value]]) -> Arms:
        """Check, sort and order the values of each hyperparameter."""
        if not choices:
            raise SettingError("Arms: no hyperparameter was named; give at least one, as in {'lr': log_grid()}.")
        walked = "lr" if "lr" in choices else list(choices)[-1]
        names = (*(name for name in choices if name != walked), walked)
        return cls(names, tuple(_checked(name, choices[name]) for name in names))

    def __len__(self) -> int:
        """K, the number of arms."""
        return math.prod(map(len, self.axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each hyperparameter has."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def row(self) -> int:
        """How many arms one walk can pass: the number of values of the hyperparameter walked along."""
        return len(self.axes[-1])

    def values(self, arm: int) -> dict[str, Value]:
        """The values, by name, that arm number `arm` stands for."""
        if not 0 <= arm < len(self):
            raise SettingError(f"Arms: there is no arm {arm}; they are numbered 0 to {len(self) - 1}.")
        if len(self.axes) == 1:
            return {self.names[0]: self.axes[0][arm]}
        chosen: list[Value] = []
        for axis in reversed(self.axes):
            arm, place = divmod(arm, len(axis))
            chosen.append(axis[place])
        return dict(zip(self.names, reversed(chosen), strict=True))


def _checked(name: str, values: Iterable[Value]) -> tuple[Value, ...]:
    """The values of one hyperparameter, large to small; tuples keep the order they came in."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise SettingError(
            f"Arms: {name} = {values!r} is not a sequence of values; give those to choose from, such as "
            "hotswap.log_grid(1, 1e-3, 7)."
        )
    axis = tuple(_number(name, value) for value in islice(values, MOST_ARMS + 1))
    if len(axis) > MOST_ARMS:
        raise SettingError(f"Arms: {name} has more than {MOST_ARMS:,} values; give fewer, such as hotswap.log_grid().")
    if not axis:
        raise SettingError(f"Arms: {name} has no values; give at least one, or leave it out.")
    repeated = sorted(str(value) for value, count in Counter(axis).items() if count > 1)
    if repeated:
        raise SettingError(f"Arms: {name} has duplicate values ({', '.join(repeated)}); give each one once.")
    if any(isinstance(value, tuple) for value in axis):
        return axis
    return tuple(sorted(axis, reverse=True))


def _number(name: str, value: Value) -> Value:
    if isinstance(value, tuple) and name != "lr":
        return tuple(_finite(name, item) for item in value)
    number = _finite(name, value)
    if name == "lr" and number <= 0:
        raise SettingError(f"Arms: lr has the value {number!r}; a learning rate must be positive.")
    return number


def _finite(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # the except below is the check
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, str | bytes | bool):
        raise SettingError(f"Arms: {name} has the value {value!r}, which is not a number.")
    if not math.isfinite(number):
        raise SettingError(f"Arms: {name} has the value {number!r}; every value must be finite.")
    return number
