"""What a race costs, before it is run."""

from __future__ import annotations

from collections.abc import Sequence

from hotswap.errors import SettingError
from hotswap.races.rounds import ROUNDS, plan_rounds

__all__ = ["race_passes", "race_steps"]


def race_passes(lanes: int, steps: int, rounds: Sequence[tuple[float, int]] = ROUNDS, least: int = 20) -> int:
    """Forward and backward passes, counted in pairs, of a race of so many steps in which no lane diverges."""
    passes, alive = steps, lanes
    for one in plan_rounds(rounds, lanes, steps, least):
        passes += (one.end - one.begin) * (alive - 1)
        alive = one.keep
    return passes


def race_steps(lanes: int, budget: int, rounds: Sequence[tuple[float, int]] = ROUNDS, least: int = 20) -> int:
    """The longest race that takes no more passes than the budget.

    Raises:
        SettingError: Even the shortest race takes more.
    """
    steps = next((n for n in range(budget, 0, -1) if _fits(lanes, n, budget, rounds, least)), None)
    if steps is None:
        raise SettingError(
            f"A race of {lanes} lanes does not fit into {budget} passes; give it more, fewer lanes, or a smaller least "
            f"than {least}."
        )
    return steps


def _fits(lanes: int, steps: int, budget: int, rounds: Sequence[tuple[float, int]], least: int) -> bool:
    try:
        return race_passes(lanes, steps, rounds, least) <= budget
    except SettingError:  # too few steps for these rounds
        return False
