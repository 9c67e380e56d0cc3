"""The values that lanes have: of each base the user's, or a default around its own rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch.optim import SGD, Optimizer

from hotswap.arms import Arms, Value, log_grid
from hotswap.errors import SettingError
from hotswap.optim.validation import initial_lr, swappable_in

__all__ = ["LANES", "SGD_LANES", "Choices", "JoinedArms", "arms_of_bases"]

Choices = Mapping[str, Iterable[Value]]
"""The values that the lanes of a base have, by hyperparameter name."""

HIGHEST, LOWEST, LANES = 30.0, 0.1, 6
"""The default lanes: from 30 times the base's own rate to a tenth of it. Of AdamW's own, 1e-3, that is 3e-2 to 1e-4."""

SGD_FACTORS = (10.0, 3.0, 1.0)
"""The default lanes of SGD beside other bases, in units of its own rate."""

SGD_LANES = len(SGD_FACTORS)

UNSAID, USUAL = 1e-3, 0.1
"""The rate that torch gives an SGD for which the user has none, Adam's, and what counts as its own in place of it."""


@dataclass(frozen=True)
class JoinedArms:
    """The arms of several bases, numbered through: those of the first, then those of the next."""

    parts: tuple[Arms, ...]

    def __len__(self) -> int:
        """The number of arms of all bases together."""
        return sum(map(len, self.parts))

    def values(self, arm: int) -> dict[str, Value]:
        """What arm number `arm` stands for, by name."""
        part, rest = 0, arm
        while part < len(self.parts) - 1 and rest >= len(self.parts[part]):
            part, rest = part + 1, rest - len(self.parts[part])
        if not 0 <= rest < len(self.parts[part]):
            raise SettingError(f"JoinedArms: there is no arm {arm}; they are numbered 0 to {len(self) - 1}.")
        return self.parts[part].values(rest)


def arms_of_bases(bases: Sequence[Optimizer], arms: Choices | Sequence[Choices | None] | None) -> list[Arms]:
    """The arms of each base: those that the user has given, or the default.

    Raises:
        SettingError: They are not given base by base, are not the base's, or make less than two lanes.
    """
    several = len(bases) > 1
    if arms is None:
        arms = [None] * len(bases)
    elif isinstance(arms, Mapping) and not several:
        arms = [arms]
    elif several and (not isinstance(arms, list | tuple) or len(arms) != len(bases)):
        raise SettingError(
            f"Race(arms=...): with {len(bases)} bases, arms is a list of {len(bases)}, the values of each base's lanes "
            "by name, or None for its default; as in arms=[{'lr': [1e-2, 1e-3]}, None]."
        )
    found = [_arms_of(base, given, several) for base, given in zip(bases, _checked(arms, len(bases)), strict=True)]
    if sum(map(len, found)) < 2:
        raise SettingError("Race(arms=...): a race needs at least two lanes; give several values.")
    return found


def _checked(arms: object, count: int) -> Sequence[Choices | None]:
    if (
        not isinstance(arms, list | tuple)
        or len(arms) != count
        or not all(given is None or isinstance(given, Mapping) for given in arms)
    ):
        raise SettingError("Race(arms=...): name what lanes differ in, as in arms={'lr': [1e-2, 1e-3, 1e-4]}.")
    return arms


def _arms_of(base: Optimizer, given: Choices | None, several: bool) -> Arms:
    rate = initial_lr(base, "Race")
    if given is None:
        return Arms.of({"lr": _default_rates(base, rate, several)})
    arms, known = Arms.of(given), swappable_in(base)
    for name in arms.names:
        if name not in known:
            raise SettingError(
                f"Race(arms={{{name!r}: ...}}): {type(base).__name__} has no hyperparameter {name!r}; it has "
                f"{', '.join(sorted(known))}."
            )
    return arms


def _default_rates(base: Optimizer, rate: float, several: bool) -> Iterable[float]:
    if several and isinstance(base, SGD):
        own = USUAL if rate == UNSAID else rate
        return [factor * own for factor in SGD_FACTORS]
    return log_grid(HIGHEST * rate, LOWEST * rate, LANES)
