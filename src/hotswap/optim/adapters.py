"""Where frameworks come in.

A framework may wrap the closure that a user passes to `step`, or step the optimizer in a way of its own. Only the
framework's file in `hotswap.integrations` knows what that means. It is imported here by name, when the framework is
met: users need not import it, and nobody else pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import FrameType
from typing import NamedTuple

__all__ = ["CLOSURE_ADAPTERS", "Closure", "Unwrapped", "refuse_scalers", "unwrapped"]

Closure = Callable[[], object]
"""Returns a loss, or a pair of a loss and anything."""

CLOSURE_ADAPTERS: dict[str, str] = {"_wrap_closure": "hotswap.integrations.lightning_closures"}
"""For the name of a function that a framework binds closures to with `functools.partial`: the module whose function
`unwrap` takes such a closure apart."""


class Unwrapped(NamedTuple):
    """The user's closure, and what a framework does when its gradients are there."""

    closure: Closure | None
    after_backward: Callable[[], object] | None = None


def unwrapped(closure: partial[object]) -> Unwrapped:
    """A closure as the user wrote it, and beside it what a framework put around it."""
    adapter = CLOSURE_ADAPTERS.get(getattr(closure.func, "__name__", ""))
    if adapter is None:
        return Unwrapped(closure)
    found: Unwrapped = import_module(adapter).unwrap(closure)
    return found


def refuse_scalers(asker: FrameType) -> None:
    """Raise where a GradScaler is about to step the optimizer."""
    import_module("hotswap.integrations.grad_scaler").refuse(asker)
