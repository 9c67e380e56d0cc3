"""One race trains a weight at a time: the model can hold a lane of one race only."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hotswap.errors import UnsupportedError

if TYPE_CHECKING:
    from hotswap.race.contest import Contest

__all__ = ["claim", "refuse_another_race"]

_owners: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""The contest that trains each weight."""


def refuse_another_race(contest: Contest) -> None:
    """Raise an error if another race has begun to train a weight of this race, and the model holds one of its lanes."""
    for other in _others(contest):
        if other.begun and (other.winner is None or contest.begun):
            raise UnsupportedError(
                "Another race trains these parameters, and the model holds one of its lanes; let one race train them, "
                "or delete the other one, or make the model anew."
            )


def claim(contest: Contest) -> None:
    """Record that a race trains its weights from now on; a race that trained them before has to ask again."""
    for other in _others(contest):
        other.is_owner = False
    me = weakref.ref(contest)
    for weight in contest.seat.weights:
        _owners[weight] = me
    contest.is_owner = True


def _others(contest: Contest) -> list[Contest]:
    found = {id(other): other for w in contest.seat.weights if (other := _owner(w)) is not None}
    return [other for other in found.values() if other is not contest]


def _owner(weight: Tensor) -> Contest | None:
    owner = _owners.get(weight)  # type: ignore[no-untyped-call]  # torch's
    return None if owner is None else owner()
