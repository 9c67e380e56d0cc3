"""The rules of a race: how long its rounds are, and which lanes go on.

References: Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization"
(successive halving); Maron and Moore 1994, "Hoeffding races" (models worse by more than the noise are dropped).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotswap.race.lane import Lane

__all__ = ["Plan", "Round", "Score", "kept", "noise", "plan", "ranked", "reason", "score_of"]

FIRST, WITHIN, ACROSS = 0.01, 0.02, 0.08
"""Shares of the run, in steps of a lane: when many lanes of one kind are compared first, when the last lanes of a kind
are compared, and when kinds are."""

JUDGED = (0.03, 0.10)
"""FIRST and WITHIN where `judge` compares lanes of one kind: it can tell only later which lane is better."""

MOST_ACROSS = 0.8
"""Part of the share that the comparison of kinds may take: three kinds are compared earlier than two."""

OPEN_WITHIN, OPEN_ACROSS = 100, 500
"""Steps in place of WITHIN and ACROSS, for a run of unknown length."""

CHEAP = 0.065
"""Share of all steps that lanes of one kind may lose where training losses compare them: more does not pay."""

LEAST = 20
"""Steps of a lane before it is judged."""

FARTHER = 2.0
"""How many times as far from the first loss a larger rate must have come, if updates have a fixed length."""

TRIES, SHORTER = 12, 0.85
"""How often rounds before the last are shortened to fit the share, and to what."""

ENDLESS = 10**9
"""Steps of a run that is too short for no lane."""

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
    """The plan of a race: its lanes and its rounds."""

    lanes: int
    """Lanes that race, from the front of the list."""
    rounds: tuple[Round, ...]
    left_out: str = ""
    """The reason why further lanes do not race."""

    def turns(self, number: int) -> list[int]:
        """The lengths of each lane's turns in a round."""
        begin = self.rounds[number - 1].until if number else 0
        steps = self.rounds[number].until - begin
        count = max(1, min(TURNS, steps // TURN))
        return [steps * (turn + 1) // count - steps * turn // count for turn in range(count)]


def plan(kinds: Sequence[object], total: int | None, share: float, *, judged: bool = False) -> Plan:
    """The rounds for lanes of these kinds, and how many of the lanes the length of the run allows.

    The lanes that lose take at most `share` of all steps together. Where they would take more, rounds are shorter.
    Where a lane would be judged after fewer than `LEAST` steps, the last lane of the list does not race.
    """
    why = ""
    for count in range(len(kinds), 1, -1):
        rounds = _fitted(kinds[:count], total, share, judged=judged)
        if rounds is not None:
            return Plan(count, rounds, why)
        why = "the run is too short to race it"
        if _fitted(kinds[:count], ENDLESS, share, judged=judged) is None:
            why = f"the race would take more than share={share:g} with it"
    return Plan(1, (), why)


def _fitted(kinds: Sequence[object], total: int | None, share: float, *, judged: bool) -> tuple[Round, ...] | None:
    first, within = JUDGED if judged else (FIRST, WITHIN)
    if total is None:
        return _rounds(kinds, max(LEAST, round(OPEN_WITHIN * first / within)), OPEN_WITHIN, OPEN_ACROSS, judged=judged)
    most = share if judged or len(set(kinds)) > 1 else min(share, CHEAP)
    for attempt in range(TRIES):
        scale = SHORTER**attempt
        early, late = (max(LEAST, round(part * scale * total)) for part in (first, within))
        across = min(ACROSS, MOST_ACROSS * share / max(1, len(set(kinds)) - 1))
        rounds = _rounds(kinds, early, late, max(late, round(across * total)), judged=judged)
        steps = lost(kinds, rounds)
        if steps <= most * total and steps + rounds[-1].until <= total:
            return rounds
    return None


def _rounds(kinds: Sequence[object], first: int, within: int, across: int, *, judged: bool) -> tuple[Round, ...]:
    """Halve the lanes of each kind until one is left, then compare the kinds.

    Up to four lanes of a kind are compared once by their training losses: a comparison before would drop those with
    small rates, which come a shorter way at first.
    """
    counts = [sum(kind == one for kind in kinds) for one in set(kinds)]
    halvings = math.ceil(math.log2(max(counts)))
    if 3 <= max(counts) <= 4 and not judged:
        halvings = 1
    rounds = []
    for number in range(halvings):
        left = halvings - 1 - number
        until = within if not left else round(first * (max(first, within) / first) ** (number / (halvings - 1)))
        rounds.append(Round(until, math.ceil(max(counts) / 2 ** (number + 1)) if left else 1))
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
    """A lane's result in a round: the mean of its losses, and the variance of that mean."""

    mean: float
    variance: float = 0.0

    @classmethod
    def of(cls, losses: Sequence[float]) -> Score:
        """The score of some losses."""
        if not losses:
            return cls(math.inf)
        mean = fmean(losses)
        return cls(mean, sum((loss - mean) ** 2 for loss in losses) / len(losses) / max(1, len(losses) - 1))


def score_of(losses: Sequence[float]) -> Score:
    """The score of a lane from its losses in a round, of which the last third counts."""
    return Score.of(losses[-math.ceil(len(losses) / 3) :])


def noise(one: Score, other: Score) -> float:
    """Two standard errors of the difference of two means."""
    return 2 * math.sqrt(one.variance + other.variance)


def beats(challenger: Score, favourite: Score, first_loss: float, *, farther: bool) -> bool:
    """Whether a lane is better than the first of its kind in the list, by more than the noise.

    farther: whether the challenger has the larger rate and updates of a fixed length. Then its loss falls faster at
        first whether or not its rate is better, so that it must have come several times as far.
    """
    if not math.isfinite(favourite.mean):
        return math.isfinite(challenger.mean)
    if not favourite.mean - challenger.mean > noise(challenger, favourite):
        return False
    return not farther or first_loss - challenger.mean > FARTHER * (first_loss - favourite.mean)


def ranked(lanes: Sequence[Lane], scores: Mapping[Lane, Score], first_loss: float) -> list[Lane]:
    """Lanes by their training losses, the best first; the first of a kind stays ahead of its kind unless it is beaten.

    Args:
        lanes: all lanes of the race, in the order of the list.
        scores: those of the lanes that still race.
        first_loss: the first loss of the run.
    """
    found = sorted(scores, key=lambda lane: scores[lane].mean)
    for kind in {lane.group for lane in found}:
        favourite = next(lane for lane in lanes if lane.group == kind)
        if favourite not in scores:
            continue
        best = next(
            lane
            for lane in found
            if lane is favourite
            or (
                lane.group == kind
                and beats(scores[lane], scores[favourite], first_loss, farther=lane.is_larger_than(favourite))
            )
        )
        found.remove(best)
        found.insert(0, best)
    return found


def kept(ranked: Sequence[Lane], scores: Mapping[Lane, Score], rule: Round) -> list[Lane]:
    """The lanes that go on; in the last round the user's own lane only yields to one that is better than the noise."""
    if not rule.across:
        return [lane for lane in ranked if sum(r.group == lane.group for r in ranked[: ranked.index(lane)]) < rule.keep]
    own, best = next((lane for lane in ranked if lane.own), None), ranked[0]
    if own is None or not math.isfinite(scores[own].mean):
        return list(ranked[: rule.keep])
    is_beaten = scores[own].mean - scores[best].mean > noise(scores[own], scores[best])
    return list(ranked[: rule.keep]) if is_beaten else [own]


def reason(lane: Lane, better: Lane) -> str:
    """The reason why a lane is dropped, in words."""
    mine, other = lane.loss, better.loss
    if mine is not None and other is not None and mine <= other:
        return f"its loss {_shown(mine)} is not clearly better than {_shown(other)} of {better.name}"
    return f"its loss {_shown(mine)} is worse than {_shown(other)} of {better.name}"


def _shown(loss: float | None) -> str:
    return "no finite loss" if loss is None or not math.isfinite(loss) else f"{loss:.4g}"
