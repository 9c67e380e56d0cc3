"""Closures that a framework has wrapped, taken apart again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from hotswap.optim.trials import Closure

__all__ = ["Given", "unwrap"]


class Given(NamedTuple):
    """What the user gave to `step`, and what his framework put around it."""

    closure: Closure | None
    hooks: Callable[[], object] | None = None
    """What the framework does between a backward and a step."""

    def run_hooks(self) -> None:
        """Once a step, when the gradients are there; a trial is none of the framework's business."""
        if self.hooks is not None:
            with torch.enable_grad():
                self.hooks()


def unwrap(closure: Closure | None) -> Given:
    """Lightning wraps every closure in one that runs hooks and clipping after it, and wraps one where there is none.

    It is known by name, since it may not be installed.
    """
    if not isinstance(closure, partial) or getattr(closure.func, "__name__", "") != "_wrap_closure":
        return Given(closure)
    *others, inner = closure.args
    none = getattr(inner, "__name__", "") == "do_nothing_closure"
    return Given(None if none else inner, partial(closure.func, *others, _nothing))


def _nothing() -> None:
    return None
