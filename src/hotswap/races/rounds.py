"""The rounds of a race: when each of them ends, and how many lanes it keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hotswap.errors import SettingError

__all__ = ["ROUNDS", "STEPS", "Round", "plan_rounds"]

ROUNDS = ((0.012, 4), (0.03, 2), (0.1, 1))
"""The default: until which share of all steps, and how many lanes stay."""

STEPS = ((60, 4), (150, 2), (500, 1))
"""The default where nobody knows how many steps there will be."""

JUDGED = 3
"""A lane is judged by the last third of a round."""


class Round(NamedTuple):
    """One round, in steps since the race began."""

    begin: int
    end: int
    keep: int
    """How many lanes go on."""

    @property
    def judged_from(self) -> int:
        """The first step whose loss counts."""
        return self.end - max(1, (self.end - self.begin) // JUDGED)


def plan_rounds(rounds: Sequence[tuple[float, int]], lanes: int, total_steps: int | None, least: int) -> list[Round]:
    """The rounds of a race with so many lanes.

    rounds: pairs of a round's end and of how many lanes it keeps. An end is a share of all steps, such as 0.03, or a
        whole number of steps. Of the defaults, those are left out that would keep all lanes.
    least: how many steps a round has at least.

    Raises:
        SettingError: The rounds make no race, or there are too few steps for them.
    """
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise SettingError(f"Race(least={least!r}): least must be a whole number of at least 1, the length of a round.")
    if total_steps is not None and (
        isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1
    ):
        raise SettingError(
            f"Race(total_steps={total_steps!r}): total_steps must be a whole number of at least 1, such as "
            "epochs * len(loader), or None if it is not known."
        )
    if isinstance(rounds, Sequence) and tuple(rounds) == ROUNDS:
        chosen = ROUNDS if total_steps is not None else STEPS
        rounds = [one for one in chosen if one[1] < lanes]
    ends = _checked(rounds, lanes, total_steps)
    planned: list[Round] = []
    for end, keep in ends:
        begin = planned[-1].end if planned else 0
        steps = end if isinstance(end, int) else math.ceil(end * (total_steps or 0))
        planned.append(Round(begin, max(steps, begin + least), keep))
    if total_steps is not None and planned[-1].end > total_steps:
        enough = _enough(ends, least)
        raise SettingError(
            f"Race(total_steps={total_steps}): these rounds need at least {enough} steps. total_steps counts "
            "minibatches, epochs * len(loader), and not epochs. For so short a run give a smaller least than "
            f"{least}, which is how many steps a round has at least."
        )
    return planned


def _checked(rounds: Sequence[tuple[float, int]], lanes: int, total_steps: int | None) -> list[tuple[float | int, int]]:
    """The rounds as pairs of a share or of steps, and of lanes, where all of them make sense together."""
    call = f"Race(rounds={rounds!r})"
    try:
        pairs = [(end, keep) for end, keep in rounds]
    except (TypeError, ValueError):
        raise SettingError(
            f"{call}: give pairs of a round's end and of how many lanes it keeps, such as {ROUNDS}."
        ) from None
    if not pairs:
        raise SettingError(f"{call}: a race needs at least one round, such as (0.1, 1).")
    before, kept = 0.0, lanes
    for end, keep in pairs:
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end) or end <= 0:
            raise SettingError(
                f"{call}: a round ends after {end!r}; give a share of all steps below 1, or whole steps."
            )
        if isinstance(end, float):
            if total_steps is None:
                raise SettingError(
                    f"{call}: {end!r} is a share of all steps, but total_steps is not given; give whole steps, such "
                    f"as {STEPS}, or total_steps."
                )
            if end >= 1:
                raise SettingError(f"{call}: a round ends after {end!r} of all steps; give a share below 1.")
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise SettingError(f"{call}: a round keeps {keep!r} lanes; give a whole number of at least 1.")
        if keep >= kept:
            known = f"there are only {lanes} lanes" if kept == lanes else f"the one before it keeps {kept}"
            raise SettingError(f"{call}: a round keeps {keep} lanes, but {known}; each round must keep fewer.")
        steps = end if isinstance(end, int) else end * (total_steps or 0)
        if steps <= before:
            raise SettingError(f"{call}: the round that ends after {end!r} does not end after the one before it.")
        before, kept = steps, keep
    if kept != 1:
        raise SettingError(f"{call}: the last round keeps {kept} lanes; it must keep 1, the winner.")
    return pairs


def _enough(ends: Sequence[tuple[float | int, int]], least: int) -> int:
    """The smallest number of steps that these rounds fit into."""
    total = 1
    while True:
        last = 0
        for end, _ in ends:
            last = max(end if isinstance(end, int) else math.ceil(end * total), last + least)
        if last <= total:
            return total
        total = max(total + 1, last)
