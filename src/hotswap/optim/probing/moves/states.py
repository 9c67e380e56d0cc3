"""Copies of a base optimizer's state, whatever is in it.

Most bases keep a dictionary for each parameter. Some keep entries that belong to no parameter beside them, such as a
counter of steps under a name of its own; these are called **loose** here.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor

__all__ = ["copied", "copied_entry", "loose_entries"]


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values, in tensors and objects of their own."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else deepcopy(value) for name, value in values.items()
    }


def copied_entry(entry: Any) -> Any:
    """An entry of a state: the dictionary of a parameter, or whatever is loose."""
    if isinstance(entry, Tensor):
        return entry.detach().clone()
    return copied(entry) if isinstance(entry, dict) else deepcopy(entry)


def loose_entries(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """Copies of the entries that belong to no parameter."""
    return {key: copied_entry(entry) for key, entry in state.items() if not isinstance(key, Tensor)}
