"""The closures of a plain LightningModule, taken apart: `hotswap.optim` imports this when it meets one.

Lightning binds every closure to a function that calls it and then runs hooks and clipping, once a step. A step with
trials calls the closure several times, so the two have to be told apart. Lightning itself is not imported here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hotswap.optim.closures import Closure

__all__ = ["unwrap"]


def unwrap(closure: partial[Any]) -> tuple[Closure | None, Closure]:
    """The user's closure, and Lightning's hooks and clipping alone.

    Lightning also wraps a closure that does nothing, where the user has passed none.
    """
    *bound, inner = closure.args
    none = getattr(inner, "__name__", "") == "do_nothing_closure"
    return None if none else inner, partial(closure.func, *bound, _nothing)


def _nothing() -> None:
    return None
