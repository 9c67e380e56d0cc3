"""States by the names of their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from hotswap.bandits.factored import FactoredState
from hotswap.states import arrays_of, replaced


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Data:
    first: Any
    second: Any


@pytest.mark.parametrize("kind", [Pair, Data])
def test_by_name(kind: Any) -> None:
    state = kind(first=1, second=2)
    assert arrays_of(state) == {"first": 1, "second": 2}
    assert replaced(state, second=3) == kind(first=1, second=3)
    assert replaced(state, {"first": 0}, second=3) == kind(first=0, second=3)
    assert state == kind(first=1, second=2)
    with pytest.raises((TypeError, ValueError), match="third"):
        replaced(state, third=3)


def test_a_state_of_states_says_what_arrays_it_has() -> None:
    state = FactoredState((Pair(1, 2), Data(3, 4)), 5)
    assert arrays_of(state) == {"axis0_first": 1, "axis0_second": 2, "axis1_first": 3, "axis1_second": 4, "step": 5}
    assert replaced(state, {"axis1_second": 0}, step=6) == FactoredState((Pair(1, 2), Data(3, 0)), 6)
    with pytest.raises(TypeError, match="no arrays called axis2_first"):
        replaced(state, axis2_first=0)


@pytest.mark.parametrize("other", [(1, 2), {"first": 1}, Data, 3])
def test_what_is_no_state(other: Any) -> None:
    with pytest.raises(TypeError, match="A state must be a named tuple or a dataclass of arrays"):
        arrays_of(other)
