"""How lanes have done, as a table for a terminal and for a notebook."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotswap.race.contest import Contest
    from hotswap.race.lane import Lane

__all__ = ["Standing", "Standings"]

HEADINGS = ("lane", "optimizer", "rate", "steps", "loss", "status")


@dataclass(frozen=True)
class Standing:
    """How one lane has done."""

    number: int
    """The lane's place in the list of optimizers, from 0."""
    name: str
    """The optimizer and its rate."""
    optimizer: str
    rate: float | None
    """The rate of the first group, before any schedule."""
    steps: int
    loss: float | None
    """The lane's last score: its mean training loss, or what `judge` returned."""
    dropped_at: int | None
    """The step of the run at which the lane was dropped; None for a lane that races or has won; 0 if it never raced."""
    why: str
    """When and why the lane was dropped; or that it races, leads, has won or trains alone."""


class Standings(tuple[Standing, ...]):
    """The lanes, the best first."""

    __slots__ = ()

    @classmethod
    def of(cls, contest: Contest) -> Standings:
        """The standings of a race."""

        def place(lane: Lane) -> tuple[bool, float]:
            return lane is not contest.leader, -math.inf if lane.dropped_at is None else -lane.dropped_at

        return cls(
            Standing(
                contest.lanes.index(lane),
                lane.name,
                type(lane.optimizer).__name__,
                lane.rates[0],
                lane.steps,
                lane.loss,
                lane.dropped_at,
                _status(lane, contest),
            )
            for lane in sorted(contest.lanes, key=place)
        )

    def cells(self) -> list[tuple[str, ...]]:
        """The table's texts, without its headings."""
        return [
            (
                str(one.number),
                one.optimizer,
                "" if one.rate is None else f"{one.rate:.3g}",
                str(one.steps),
                "" if one.loss is None else f"{one.loss:.4g}",
                one.why,
            )
            for one in self
        ]

    def __str__(self) -> str:
        rows = [HEADINGS, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for lane, optimizer, *numbers, why in rows:
            right = "  ".join(text.rjust(width) for text, width in zip(numbers, widths[2:-1], strict=True))
            lines.append(f"{lane.rjust(widths[0])}  {optimizer.ljust(widths[1])}  {right}  {why}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(text)}</th>" for text in HEADINGS)
        body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in self.cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _status(lane: Lane, contest: Contest) -> str:
    """When and why a lane was dropped; or that it races, leads, has won or trains alone."""
    if lane.dropped_at is not None:
        return f"dropped at step {lane.dropped_at}: {lane.dropped}" if lane.dropped_at else lane.dropped
    if lane is contest.winner:
        return "won" if any(other.dropped_at for other in contest.lanes) else "trains alone"
    return "leads" if lane is contest.leader and lane.loss is not None else "races"
