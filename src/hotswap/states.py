"""State as named arrays: what a bandit or a search remembers, whatever fields it has.

A state is any named tuple or dataclass whose fields are arrays. It is copied, saved and loaded by the names of its
fields, never by their places. A state that is made of other states says by itself what arrays it has: it has the
methods `arrays()`, a dictionary by name, and `replaced(arrays)`, the same state with other arrays in the named places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from dataclasses import replace as replace_fields
from typing import Any, TypeAlias, TypeVar

from hotswap.arrays import Array

__all__ = ["State", "arrays_of", "replaced"]

State: TypeAlias = Any
"""A named tuple or dataclass of arrays."""

S = TypeVar("S")


def arrays_of(state: Any) -> dict[str, Array]:
    """The fields of a state, by name.

    Raises:
        TypeError: It is neither a named tuple nor a dataclass.
    """
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return dict(zip(state._fields, state, strict=True))
    if hasattr(state, "arrays") and not isinstance(state, type):
        own: dict[str, Array] = state.arrays()
        return own
    if is_dataclass(state) and not isinstance(state, type):
        return {field.name: getattr(state, field.name) for field in fields(state)}
    raise TypeError(
        f"A state must be a named tuple or a dataclass of arrays, but this is of type {type(state).__name__}."
    )


def replaced(state: S, arrays: Mapping[str, Array] | None = None, /, **named: Array) -> S:
    """The same state with other arrays in the fields that are named."""
    new = {**arrays, **named} if arrays else named
    if isinstance(state, tuple) and hasattr(state, "_replace"):
        changed: S = state._replace(**new)
        return changed
    if hasattr(state, "replaced"):
        other: S = state.replaced(new)
        return other
    return replace_fields(state, **new)  # type: ignore[type-var]  # a dataclass, as `arrays_of` would say
