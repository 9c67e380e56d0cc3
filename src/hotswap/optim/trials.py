"""Evaluating closures: once with a gradient at the start point, then without one for every trial."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from hotswap.errors import ClosureError

__all__ = ["GradientPass", "HotSwapWarning", "evaluate_trial", "in_trial", "run_gradient_pass", "scalar"]

Closure = Callable[[], object]
"""Returns a loss, or a pair of a loss and anything."""

_in_trial: ContextVar[bool] = ContextVar("hotswap_in_trial", default=False)


class HotSwapWarning(UserWarning):
    """Something works, but costs more or means less than the user may think."""


def in_trial() -> bool:
    """Whether the closure that asks is being evaluated for a trial: do not log, count or plot there."""
    return _in_trial.get()


class GradientPass(NamedTuple):
    """What the one forward and backward at the start point gave."""

    loss: Tensor
    """The loss, detached."""
    aux: object
    """What came beside it, detached where it is a tensor."""
    by_closure: bool
    """Whether the closure called `backward()` itself."""


def run_gradient_pass(closure: Closure, parameters: Iterable[Tensor]) -> GradientPass:
    """Clear the gradients, evaluate the closure, and run its backward unless it did so itself."""
    parameters = list(parameters)
    for parameter in parameters:
        parameter.grad = None
    with torch.enable_grad():
        loss, aux = _unpack(closure())
        by_closure = any(parameter.grad is not None for parameter in parameters)
        if not by_closure:
            _require_graph(loss)
            torch.autograd.backward(loss)
    if all(parameter.grad is None for parameter in parameters):
        raise ClosureError(
            "The closure's loss does not depend on this optimizer's parameters: no gradient reached any of them; "
            "return the loss of the model whose parameters the optimizer was given."
        )
    return GradientPass(loss.detach(), _detached(aux), by_closure)


def evaluate_trial(closure: Closure, *, with_grad: bool = False) -> float:
    """The closure's loss at the parameters as they are, called where gradients are disabled.

    `with_grad`: the closure insists on its own backward, so they are enabled for it.
    """
    torch.clear_autocast_cache()  # it holds casts of the weights as they were before
    token = _in_trial.set(True)
    try:
        if with_grad:
            with torch.enable_grad():
                return _unpack(closure())[0].item()
        return _unpack(closure())[0].item()
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
    if loss.numel() != 1 or not loss.is_floating_point():
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


def warn_of_another_loss(first: float, again: float) -> None:
    """Say why a search is no use with this closure."""
    warnings.warn(
        f"The closure gave a loss of {first:g} and then, at the same parameters, {again:g}. A search compares losses, "
        "so it needs a closure that computes the same one every time: load the minibatch outside of it, and draw "
        "random numbers with torch's default generator, which a step rewinds for every trial.",
        HotSwapWarning,
        stacklevel=8,
    )


def warn_of_no_search() -> None:
    """Say what a loop in torch's usual style does here."""
    warnings.warn(
        "step() was called without a closure, so nothing is searched and nothing learned: the smallest rate applies. "
        "Pass the loss as a function, optimizer.step(lambda: loss_fn(model(x), y)); the optimizer does the backward.",
        HotSwapWarning,
        stacklevel=6,
    )


def _unpack(result: object) -> tuple[Tensor, object]:
    if isinstance(result, tuple):
        if len(result) != 2:
            raise ClosureError(
                f"The closure returned a tuple of {len(result)}; return the loss alone or a pair (loss, anything)."
            )
        return scalar(result[0], "The closure's loss"), result[1]
    return scalar(result, "The closure's loss"), None


def _require_graph(loss: Tensor) -> None:
    if not loss.requires_grad:
        raise ClosureError(
            "The closure's loss has no graph, so it has no gradient; compute it from the model's output with "
            "gradients enabled, and do not detach it or call .item() on it."
        )


def _detached(aux: object) -> object:
    """`aux` without the graph that its tensors would keep alive; other objects come back as they are."""
    if isinstance(aux, Tensor):
        return aux.detach()
    if type(aux) is tuple:
        return tuple(_detached(item) for item in aux)
    if type(aux) is list:
        return [_detached(item) for item in aux]
    if type(aux) is dict:
        return {key: _detached(item) for key, item in aux.items()}
    return aux
