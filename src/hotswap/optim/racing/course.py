"""What a race remembers from step to step, beside the weights and the state of its lanes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotswap.optim.racing.averaging import Average
from hotswap.optim.racing.lanes import Lane
from hotswap.optim.racing.records import Brief, RaceStep
from hotswap.optim.racing.together import Trying
from hotswap.optim.snapshots import Snapshot

__all__ = ["Course", "Out"]


@dataclass(frozen=True)
class Out:
    """Since when a lane is no longer racing, and why."""

    step: int
    reason: str


@dataclass
class Course:
    """It is one object that changes in place, because frameworks keep copies of an optimizer's attributes."""

    leader: int
    """The lane that the model holds between steps."""
    step: int = 0
    """How many steps there were."""
    begun: int = 0
    """How many there were when the race began, which is later than 0 where it had to begin again."""
    passes: int = 0
    """Forward and backward passes of all lanes."""
    round: int = 0
    """Which round it is, counted from 0."""
    lanes: list[Lane] = field(default_factory=list)
    """Those that are racing, in the order of their numbers; the winner alone at the end; none before the first step."""
    sums: dict[int, float] = field(default_factory=dict)
    """Of the losses by which lanes will be judged at the end of the round."""
    counted: int = 0
    """How many losses are in each of these sums."""
    losses: dict[int, float] = field(default_factory=dict)
    """What lanes were judged by when they were last compared."""
    out: dict[int, Out] = field(default_factory=dict)
    restarts: int = 0
    """How often the race began again."""
    halvings: int = 0
    """How often the winner went back to its snapshot."""
    won: int | None = None
    """The step at which the race was over."""
    early: list[float] = field(default_factory=list)
    """The losses of the first steps, the median over lanes: a lane that is far worse has diverged."""
    highest: float = 0.0
    """Above which loss the winner has diverged."""
    running_loss: float = 0.0
    """A running mean of the winner's."""
    start: Snapshot | None = None
    """The state in which the race began, as long as it is not over."""
    kept: Snapshot | None = None
    """The winner's snapshot."""
    average: Average = field(default_factory=Average)
    """Of the winner's weights, where nobody knows how long the run will be."""
    trying: Trying | None = None
    """Finds out whether lanes are faster as one program; None where they cannot be."""
    notes: list[str] = field(default_factory=list)
    ahead: bool = False
    """Whether a step was taken that a `step()` without a closure is still to ask for."""
    last_step: RaceStep | Brief | None = None

    def lane(self, number: int) -> Lane:
        """The racing lane with this number."""
        return next(lane for lane in self.lanes if lane.number == number)

    @property
    def order(self) -> list[Lane]:
        """In which order lanes take a step: the leader last, so that the model holds it afterwards."""
        return sorted(self.lanes, key=lambda lane: lane.number == self.leader)
