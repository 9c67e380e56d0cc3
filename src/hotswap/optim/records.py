"""An optimizer's account of itself: a record of the last step, a table of the arms."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.arms import Arms, Value

__all__ = ["ArmStatistics", "Statistics", "StepRecord", "applied"]


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """The record of one step.

    Attributes:
        start: The arm the walk began at; in a step without one, the arm that was taken. Arms are numbered from the
            largest rate on; `optimizer.arms.values(arm)` says what one stands for.
        arm: The arm that was taken; None when nothing moved.
        values: What was applied, by name, in the first parameter group; `lr` is 0.0 when nothing moved.
        loss_before: The loss that the trials had to beat; in a step without trials, the loss of the gradient pass; NaN
            for a step without a loss.
        loss_after: The same loss after the step; equal to `loss_before` when nothing moved, NaN where no trial tells.
        trials: Arm and loss of each trial, in order.
        rewards: What each trial was worth to the bandit.
        aux: What the closure returned beside its loss in the gradient pass, so before the step.
        start_evaluations: How many further evaluations it took to know the loss that the trials had to beat: one where
            the arms tried set other values than were in force, see `setters` of `HotSwap`.
    """

    start: int
    arm: int | None
    values: dict[str, Value]
    loss_before: float
    loss_after: float
    trials: tuple[tuple[int, float], ...]
    rewards: tuple[float, ...] = ()
    aux: object = None
    start_evaluations: int = 0


def applied(arms: Arms, arm: int, scale: float) -> dict[str, Value]:
    """The values of an arm, by name, in a parameter group whose rate is `scale` times the arm's."""
    return {
        name: value * scale if name == "lr" else value  # type: ignore[operator]  # a rate is a float
        for name, value in arms.values(arm).items()
    }


@dataclass(frozen=True)
class ArmStatistics:
    """Count, mean reward and index of one arm."""

    values: dict[str, Value]
    count: float
    mean: float
    index: float


class Statistics(tuple[ArmStatistics, ...]):
    """One row per arm, large rates first. Print it."""

    def __str__(self) -> str:
        names = list(self[0].values)
        best = max(range(len(self)), key=lambda arm: self[arm].index)
        lines = [["arm", *names, "count", "mean reward", "index", ""]]
        for arm, row in enumerate(self):
            values = [_short(row.values[name]) for name in names]
            mark = "<- largest index" if arm == best else ""
            lines.append([str(arm), *values, f"{row.count:.3g}", f"{row.mean:.3g}", f"{row.index:.4g}", mark])
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
        return "\n".join(
            "  ".join([*(cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=True)), line[-1]]).rstrip()
            for line in lines
        )

    __repr__ = __str__


def _short(value: Value) -> str:
    return f"({', '.join(f'{item:g}' for item in value)})" if isinstance(value, tuple) else f"{value:.3g}"
