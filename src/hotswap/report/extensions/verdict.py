"""Is there a variant that is ahead of everyone, early and late, at every batch size, at equal cost?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hotswap.report.extensions.comparison import RIVALS, Comparison, Rival
from hotswap.report.extensions.words import factor, listed

__all__ = ["DECIDING", "Margin", "Prize", "Standing", "confirmed", "prize"]

DECIDING = RIVALS[:3]
"""Whom a variant has to be ahead of."""


@dataclass(frozen=True)
class Margin:
    """A variant and a rival at one batch size and cost."""

    rival: Rival
    batch_size: int
    cost: int
    lead: float
    """The rival's objective over the variant's: above 1 the variant is ahead. NaN where it cannot be known."""

    def place(self) -> str:
        """Where this is, in words."""
        return f"at batch {self.batch_size} at the cost of {self.cost} plain epochs"


@dataclass(frozen=True)
class Standing:
    """A variant against all who decide."""

    variant: str
    margins: tuple[Margin, ...]

    @property
    def known(self) -> tuple[Margin, ...]:
        """The comparisons that can be made."""
        return tuple(margin for margin in self.margins if not math.isnan(margin.lead))

    @property
    def whole(self) -> bool:
        """Whether every comparison can be made."""
        return bool(self.margins) and len(self.known) == len(self.margins)

    @property
    def leads(self) -> int:
        """In how many of them the variant is ahead; as good is not ahead."""
        return sum(margin.lead > 1 for margin in self.known)

    @property
    def ahead(self) -> bool:
        """Whether it is ahead of everyone everywhere."""
        return self.whole and self.leads == len(self.margins)

    @property
    def worst(self) -> Margin:
        """Where its lead is smallest, or it is furthest behind."""
        return min(self.known, key=lambda margin: margin.lead)


@dataclass(frozen=True)
class Prize:
    """The verdict on all variants of a study."""

    standings: tuple[Standing, ...]
    """From the smallest lead that is largest; those that cannot be judged come last."""
    moments: tuple[int, ...]
    lacking: tuple[Rival, ...]
    """Of those who decide, whom nobody has trained on this problem."""

    @property
    def winners(self) -> tuple[Standing, ...]:
        """Who is ahead of everyone everywhere, the clearest first."""
        return tuple(standing for standing in self.standings if standing.ahead)

    @property
    def nearest(self) -> Standing | None:
        """Of those who can be judged, who is ahead by most, or behind by least, where it is worst; None if nobody."""
        return next((standing for standing in self.standings if standing.whole), None)

    def of(self, variant: str) -> Standing | None:
        """The standing of one variant."""
        return next((standing for standing in self.standings if standing.variant == variant), None)

    def sentences(self) -> list[str]:
        """The verdict in words."""
        everyone = listed([rival.whole for rival in DECIDING])
        when = listed([f"of {cost}" for cost in self.moments])
        where = f"at every batch size, at the cost {when} plain epochs"
        if self.lacking:
            names = listed([rival.whole for rival in self.lacking])
            return [f"Whether a variant is ahead of {everyone} cannot be said: there are no runs of {names}."]
        if self.winners:
            first = f"Ahead of {everyone} {where}: {listed([f'`{s.variant}`' for s in self.winners])}."
            return [first, *(_smallest(standing) for standing in self.winners)]
        if self.nearest is None:
            return [f"No variant was trained for long enough to be compared with {everyone} {where}."]
        waiting = sum(not standing.whole for standing in self.standings)
        found = [f"No variant is ahead of {everyone} {where}.", f"Nearest is {_distance(self.nearest)}"]
        if waiting:
            found.append(f"Of {waiting} of {len(self.standings)} variants not all of these costs were recorded.")
        return found


def _smallest(standing: Standing) -> str:
    worst = standing.worst
    lead = f"a factor of {factor(worst.lead)}" if math.isfinite(worst.lead) else "without bound"
    return f"`{standing.variant}` is ahead by {lead} or more; by least of {worst.rival.whole}, {worst.place()}."


def _distance(standing: Standing) -> str:
    """How near a variant came, to follow "Nearest is"."""
    worst = standing.worst
    behind = (
        f"as good as that of {worst.rival.whole}"
        if worst.lead == 1
        else f"{factor(1 / worst.lead)} times that of {worst.rival.whole}"
        if worst.lead > 0
        else "no number"
    )
    return (
        f"`{standing.variant}`, ahead in {standing.leads} of {len(standing.margins)} comparisons: where it is worst, "
        f"{worst.place()}, its objective is {behind}."
    )


def confirmed(first: Prize, again: Prize) -> list[str]:
    """What a second study, from other first weights, says of those who were ahead in the first, in words."""
    if not first.winners:
        return again.sentences()
    found = []
    for winner in first.winners:
        standing = again.of(winner.variant)
        if standing is None or not standing.whole:
            found.append(f"`{winner.variant}` was not trained to the end again, so nothing is confirmed.")
        elif standing.ahead:
            found.append(f"It is confirmed: {_smallest(standing)}")
        else:
            found.append(f"It is not confirmed for {_distance(standing)}")
    return found


def prize(comparison: Comparison) -> Prize:
    """Judge every variant but the paper's own algorithm."""
    there = {rival.key for rival in comparison.present}
    lacking = tuple(rival for rival in DECIDING if rival.key not in there)
    standings = [_standing(comparison, family.name) for family in comparison.others]
    return Prize(tuple(sorted(standings, key=_rank)), comparison.moments, lacking)


def _rank(standing: Standing) -> tuple[bool, float]:
    return not standing.whole, -standing.worst.lead if standing.known else math.inf


def _standing(comparison: Comparison, name: str, rivals: Sequence[Rival] = DECIDING) -> Standing:
    margins = tuple(
        Margin(rival, size, cost, _lead(comparison.ratio(name, size, cost, rival.key)))
        for rival in rivals
        for size in comparison.batch_sizes
        for cost in comparison.moments
    )
    return Standing(name, margins)


def _lead(ratio: float) -> float:
    return math.inf if ratio == 0 else 1 / ratio
