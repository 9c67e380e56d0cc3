"""How lanes have done, as a table for a terminal and for a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotswap.race.contest import Contest
    from hotswap.race.lane import Lane

__all__ = ["Standing", "Standings"]

HEADINGS = ("lane", "rate", "steps", "loss", "")


@dataclass(frozen=True)
class Standing:
    """How one lane has done."""

    name: str
    optimizer: str
    rate: float | None
    """Of its first group, before any schedule."""
    steps: int
    loss: float | None
    """What it was judged by last: its mean training loss, or what `judge` said."""
    dropped_at: int | None
    """The step of the run at which it was dropped; None for a lane that races or has won."""
    why: str
    """Why it was dropped, or what it is now."""


class Standings(tuple[Standing, ...]):
    """The lanes, the best first."""

    __slots__ = ()

    @classmethod
    def of(cls, contest: Contest) -> Standings:
        """The standings of a race."""

        def place(lane: Lane) -> tuple[bool, int]:
            return lane is not contest.leader, -(len(contest.lanes) if lane.dropped_at is None else lane.dropped_at)

        rows = []
        for lane in sorted(contest.lanes, key=place):
            if lane.dropped_at is not None:
                why = f"dropped at step {lane.dropped_at}: {lane.dropped}" if lane.dropped_at else lane.dropped
            elif lane is contest.winner:
                raced = any(other.dropped_at for other in contest.lanes)
                why = "won" if raced else "trains alone"
            else:
                why = "leads" if lane is contest.leader and lane.loss is not None else "races"
            rows.append(
                Standing(
                    lane.name, type(lane.optimizer).__name__, lane.rates[0], lane.steps, lane.loss, lane.dropped_at, why
                )
            )
        return cls(rows)

    def cells(self) -> list[tuple[str, ...]]:
        """The table's texts, without its headings."""
        return [
            (
                one.name,
                "" if one.rate is None else f"{one.rate:.3g}",
                str(one.steps),
                "" if one.loss is None else f"{one.loss:.4g}",
                one.why,
            )
            for one in self
        ]

    def __str__(self) -> str:
        rows = [HEADINGS, *self.cells()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = []
        for name, *numbers, why in rows:
            right = "  ".join(text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))
            lines.append(f"{name.ljust(widths[0])}  {right}  {why}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(text)}</th>" for text in HEADINGS)
        body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in self.cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
