"""Evaluating closures for trials, and what to tell about closures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar

import torch
from torch import Tensor

from hotswap.errors import ClosureError

__all__ = [
    "Closure",
    "HotSwapWarning",
    "evaluate_trial",
    "in_trial",
    "scalar",
    "unpack",
    "warn_of_another_loss",
    "warn_of_no_search",
    "warn_of_own_backward",
]

Closure = Callable[[], object]
"""Returns a loss, or a pair of a loss and anything."""

_in_trial: ContextVar[bool] = ContextVar("hotswap_in_trial", default=False)


class HotSwapWarning(UserWarning):
    """Something works, but costs more or means less than the user may think."""


def in_trial() -> bool:
    """Whether the closure that asks is being evaluated for a trial: do not log, count or plot there."""
    return _in_trial.get()


def evaluate_trial(closure: Closure, *, with_grad: bool = False, old: Tensor | None = None) -> float:
    """The closure's loss at the parameters as they are, called where gradients are disabled.

    `with_grad`: the closure insists on its own backward, so they are enabled for it. `old`: the loss of an evaluation
    before; to be given it again, with its graph, where none is made, means that nothing was evaluated.
    """
    torch.clear_autocast_cache()  # it holds casts of the weights as they were before
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
    finally:
        _in_trial.reset(token)


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


def warn_of_own_backward() -> None:
    """Say once what a closure with its own backward costs."""
    warnings.warn(
        "The closure calls backward() itself. That works, but every trial then pays for a backward pass that nothing "
        "uses: return the loss without calling backward(), and the optimizer runs it once per step.",
        HotSwapWarning,
        stacklevel=6,  # through torch's two wrappers to the line that called step
    )


def warn_of_another_loss(first: float, again: float, *, watched: bool) -> None:
    """Say why a search is no use with this closure."""
    advice = (
        "load the minibatch outside of it, and draw random numbers with torch's default generator, which a step "
        "rewinds for every trial."
        if watched
        else "call the model and backward() inside `with optimizer.gradient_pass():`, so that trials see the same "
        "dropout masks and buffers, and pass the loss of the same minibatch."
    )
    warnings.warn(
        f"The closure gave a loss of {first:g} and then, at the same parameters, {again:g}. A search compares losses, "
        f"so it needs a closure that computes the same one every time: {advice}",
        HotSwapWarning,
        stacklevel=8,
    )


def warn_of_the_same_loss(trials: int) -> None:
    """Say what it means that nothing changes, wherever the parameters are."""
    warnings.warn(
        f"All {trials} trials had exactly the loss of the start point, so the closure does not see that the parameters "
        "move: call the model inside of it, optimizer.step(lambda: loss_fn(model(x), y)), and not before.",
        HotSwapWarning,
        stacklevel=8,
    )


def warn_of_no_search() -> None:
    """Say what a loop in torch's usual style does here."""
    warnings.warn(
        "step() was called without a closure, so nothing is searched and nothing learned: the smallest rate applies. "
        "Pass the loss as a function, optimizer.step(lambda: loss_fn(model(x), y)); the optimizer does the backward. "
        "Where a framework calls step(), use hotswap.integrations, or optimizer.search_with before.",
        HotSwapWarning,
        stacklevel=6,
    )


def unpack(result: object) -> tuple[Tensor, object]:
    """A closure's result as a loss and what came beside it."""
    if isinstance(result, tuple):
        if len(result) != 2:
            raise ClosureError(
                f"The closure returned a tuple of {len(result)}; return the loss alone or a pair (loss, anything)."
            )
        return scalar(result[0], "The closure's loss"), result[1]
    return scalar(result, "The closure's loss"), None
