"""The rules of a race: how long its rounds are, and which lanes go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

__all__ = ["Plan", "Round", "Score", "noise", "plan", "score_of"]

FIRST, WITHIN, ACROSS = 0.01, 0.06, 0.10
"""Shares of the run, in steps of a lane: when lanes of one kind are compared first and last, and when kinds are."""

OPEN_FIRST, OPEN_WITHIN, OPEN_ACROSS = 60, 300, 500
"""The same in steps, for a run of unknown length."""

LEAST = 20
"""Steps of a lane before it is judged."""

TURN = 20
"""Steps of a turn at least, where a round has so many."""

TURNS = 4
"""Turns of each lane in a round at most."""


@dataclass(frozen=True)
class Round:
    """One round: every lane that is left trains until it has taken so many steps; then some are dropped."""

    until: int
    """Steps that each lane has taken when the round ends."""
    keep: int
    """Lanes of each kind that go on; in the round across kinds, lanes altogether."""
    across: bool = False
    """Whether lanes of different kinds are compared."""


@dataclass(frozen=True)
class Plan:
    """What a race will do."""

    lanes: int
    """Lanes that race, from the front of the list."""
    rounds: tuple[Round, ...]

    def turns(self, number: int) -> list[int]:
        """The lengths of each lane's turns in a round."""
        begin = self.rounds[number - 1].until if number else 0
        steps = self.rounds[number].until - begin
        count = max(1, min(TURNS, steps // TURN))
        return [steps * (turn + 1) // count - steps * turn // count for turn in range(count)]


def plan(kinds: Sequence[object], total: int | None, share: float) -> Plan:
    """The rounds for lanes of these kinds, and how many of the lanes the length of the run allows.

    The lanes that lose take at most `share` of all steps together. Where they would take more, rounds are shorter; where
    a lane would be judged after fewer than `LEAST` steps, the last lane of the list does not race.
    """
    for count in range(len(kinds), 1, -1):
        rounds = _fitted(kinds[:count], total, share)
        if rounds is not None:
            return Plan(count, rounds)
    return Plan(1, ())


def _fitted(kinds: Sequence[object], total: int | None, share: float) -> tuple[Round, ...] | None:
    if total is None:
        return _rounds(kinds, OPEN_FIRST, OPEN_WITHIN, OPEN_ACROSS)
    scale = 1.0
    for _ in range(20):
        first, within = (max(LEAST, round(part * scale * total)) for part in (FIRST, WITHIN))
        across = max(within, round(ACROSS * total * (1 if scale > 0.5 else 2 * scale)))
        rounds = _rounds(kinds, first, within, across)
        if lost(kinds, rounds) <= share * total:
            return rounds
        scale *= 0.85
    return None


def _rounds(kinds: Sequence[object], first: int, within: int, across: int) -> tuple[Round, ...]:
    """Halve the lanes of each kind until one is left, at points that grow by a constant factor; then compare kinds."""
    counts = [sum(kind == one for kind in kinds) for one in set(kinds)]
    halvings = math.ceil(math.log2(max(counts)))
    rounds = []
    for number in range(halvings):
        grown = 1.0 if halvings == 1 else number / (halvings - 1)
        until = round(first * (max(first, within) / first) ** grown) if halvings > 1 else within
        keep = math.ceil(max(counts) / 2 ** (number + 1))
        rounds.append(Round(until, keep))
    if len(counts) > 1:
        rounds.append(Round(max(across, rounds[-1].until if rounds else 0), 1, across=True))
    return tuple(rounds)


def lost(kinds: Sequence[object], rounds: Sequence[Round]) -> int:
    """The steps that lanes take together which are dropped later."""
    left = {kind: sum(one == kind for one in kinds) for kind in set(kinds)}
    steps = 0
    for one in rounds:
        if one.across:
            return steps + (sum(left.values()) - one.keep) * one.until
        steps += sum(max(0, count - one.keep) for count in left.values()) * one.until
        left = {kind: min(count, one.keep) for kind, count in left.items()}
    return steps


@dataclass(frozen=True)
class Score:
    """How a lane did in a round: the mean of its losses, and the variance of that mean."""

    mean: float
    variance: float = 0.0

    @classmethod
    def of(cls, losses: Sequence[float]) -> Score:
        """The score of some losses."""
        return cls(fmean(losses), pvariance(losses) / max(1, len(losses) - 1)) if losses else cls(math.inf)


def score_of(losses: Sequence[float]) -> Score:
    """The score of a lane from its losses in a round, of which the last third counts."""
    return Score.of(losses[-math.ceil(len(losses) / 3) :])


def noise(one: Score, other: Score) -> float:
    """Two standard errors of the difference of two means."""
    return 2 * math.sqrt(one.variance + other.variance)
