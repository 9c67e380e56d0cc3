"""Evaluating closures for trials."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from hotswap.errors import ClosureError

__all__ = ["Closure", "clear_caches", "evaluate_trial", "in_trial", "scalar", "unpack"]

Closure = Callable[[], object]
"""Returns a loss, or a pair of a loss and anything."""

_in_trial: ContextVar[bool] = ContextVar("hotswap_in_trial", default=False)


def in_trial() -> bool:
    """Whether the closure that asks is being evaluated for a trial: do not log, count or plot there."""
    return _in_trial.get()


def evaluate_trial(closure: Closure, *, with_grad: bool = False, old: Tensor | None = None) -> float:
    """The closure's loss at the parameters as they are, called where gradients are disabled.

    `with_grad`: the closure insists on its own backward, so they are enabled for it. `old`: the loss of an evaluation
    before; to be given it again, with its graph, where none is made, means that nothing was evaluated.
    """
    clear_caches()
    token = _in_trial.set(True)
    try:
        with torch.set_grad_enabled(with_grad):
            loss = unpack(closure())[0]
        if old is not None and loss.requires_grad and not with_grad and old.data_ptr() == loss.data_ptr():
            raise ClosureError(
                "The closure returned a loss that was computed before it was called, so it cannot be evaluated anew: "
                "compute the loss inside, optimizer.step(lambda: loss_fn(model(x), y))."
            )
        return loss.item()
    except RuntimeError as error:
        if with_grad or "does not require grad" not in str(error):
            raise
        raise ClosureError(
            "The closure needs gradients inside, for a penalty say, but trials run without: compute that part of it "
            "inside `with torch.enable_grad():`."
        ) from error
    finally:
        _in_trial.reset(token)


def clear_caches() -> None:
    """What torch keeps of weights as they were before: casts of them, and what `parametrize.cached()` has computed."""
    torch.clear_autocast_cache()
    parametrize._cache.clear()


def scalar(loss: object, name: str) -> Tensor:
    """The loss as a tensor of one number, or a sentence about what it is instead."""
    if isinstance(loss, (int, float)):
        return torch.tensor(float(loss), dtype=torch.float64)
    if not isinstance(loss, Tensor):
        raise ClosureError(
            f"{name} must be a scalar tensor, but it is of type {type(loss).__name__}; "
            "a closure returns the loss, or the pair (loss, anything)."
        )
    if loss.numel() == 1 and not loss.is_floating_point():
        raise ClosureError(f"{name} must be a floating-point number, but its type is {loss.dtype}; convert it.")
    if loss.numel() != 1:
        raise ClosureError(
            f"{name} must be a scalar tensor, but it has shape {tuple(loss.shape)} and type {loss.dtype}; "
            "reduce it to one number, for example with .mean()."
        )
    return loss


def unpack(result: object) -> tuple[Tensor, object]:
    """A closure's result as a loss and what came beside it."""
    if isinstance(result, tuple):
        if len(result) != 2:
            raise ClosureError(
                f"The closure returned a tuple of {len(result)}; return the loss alone or a pair (loss, anything)."
            )
        first, second = result
        if isinstance(first, Tensor) and first.numel() != 1 and isinstance(second, Tensor) and second.numel() == 1:
            raise ClosureError(
                f"The closure returned a pair of a tensor of shape {tuple(first.shape)} and one of a single "
                "number; the loss comes first."
            )
        return scalar(first, "The closure's loss"), second
    return scalar(result, "The closure's loss"), None
