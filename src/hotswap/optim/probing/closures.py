"""Evaluating a closure: once with its backward, for the gradient, and as often as there are trials without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from hotswap.errors import ClosureError
from hotswap.optim.adapters import Closure, unwrapped
from hotswap.optim.probing.grad_mode import grad_mode
from hotswap.optim.probing.gradients import NO_GRADIENTS, LossScale
from hotswap.optim.probing.losses import LossReader
from hotswap.optim.probing.stale_gradients import GradientWatch, refuse_addition

__all__ = [
    "Closure",
    "GradientPass",
    "Request",
    "WithBackward",
    "as_trial",
    "backward_of",
    "evaluate_trial",
    "in_trial",
    "request_of",
    "run_gradient_pass",
    "scalar",
    "unpack",
]

_in_trial: ContextVar[bool] = ContextVar("hotswap_in_trial", default=False)


def in_trial() -> bool:
    """Whether the closure that asks is being evaluated for a trial: do not log, count or plot there."""
    return _in_trial.get()


@contextmanager
def as_trial() -> Iterator[None]:
    """Inside, `in_trial()` says so."""
    token = _in_trial.set(True)
    try:
        yield
    finally:
        _in_trial.reset(token)


class WithBackward(ABC):
    """A closure with two ways to evaluate it: the loss alone, for trials, and the loss with its backward."""

    @abstractmethod
    def __call__(self) -> Tensor:
        """The loss, forward only."""

    @abstractmethod
    def backward(self, factor: float = 1.0) -> Tensor:
        """The loss, with the gradient of `factor` times it in `.grad`."""


class Request(NamedTuple):
    """What one step was asked to work with."""

    closure: Closure | None
    """Computes the loss for the gradient pass; None where gradients are in `.grad` already."""
    trial_closure: Closure | None
    """Computes the loss of the trials; None for the same closure."""
    loss: Tensor | float | None
    """The trial closure's loss at the start point, where it is known."""
    after_backward: Callable[[], object] | None
    """What a framework does between a backward and a step."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to search with."""
        return self.closure is None and self.trial_closure is None


def request_of(closure: object, trial_closure: object, loss: Tensor | float | None) -> Request:
    """The arguments of `step`, checked, and without what a framework has wrapped around the closure."""
    if loss is not None and trial_closure is None:
        raise ClosureError(
            "step(loss=...) was called without a trial_closure: it is the trial closure's loss at the start point; "
            "pass both, or neither."
        )
    inner = _checked("closure", closure)
    judge = None if trial_closure is None else _checked("trial_closure", trial_closure)
    after_backward: Callable[[], object] | None = None
    if isinstance(closure, partial):
        inner, after_backward = unwrapped(closure)
    return Request(inner, judge, loss, after_backward)


def _checked(name: str, function: object) -> Closure | None:
    if function is None or callable(function):
        return function
    raise ClosureError(
        f"step({name}=...) must be a function that computes the loss, but it is of type "
        f"{type(function).__name__}; write optimizer.step(lambda: loss_fn(model(x), y))."
    )


# --- the gradient pass ------------------------------------------------------------------------------------------------


class GradientPass(NamedTuple):
    """The result of the one forward and backward at the start point."""

    loss: Tensor
    """The loss, detached."""
    aux: object
    """What the closure returned beside the loss, with its tensors detached."""
    by_closure: bool
    """Whether the closure called `backward()` itself."""
    overflow: bool = False
    """Whether the loss scale was too large for the gradient."""
    unrounded: Mapping[int, Tensor] = NO_GRADIENTS
    """Gradients in float32 of parameters in low precision, whose `.grad` is rounded, by the parameter's id."""


def run_gradient_pass(
    closure: Closure,
    parameters: list[Tensor],
    scale: LossScale | None,
    unused: Sequence[Tensor],
    reader: LossReader | None,
) -> GradientPass:
    """Clear the gradients, evaluate the closure, and run its backward unless it did so itself.

    `unused` are parameters with gradients that no step has used. A closure that runs a backward must clear them.
    `reader` is told the loss between forward and backward, where there is a time between them; None if nobody reads it.
    """
    factor = 1.0 if scale is None else scale.value
    with grad_mode(True):
        if isinstance(closure, WithBackward):
            for parameter in parameters:
                parameter.grad = None
            loss, aux, by_closure = closure.backward(factor), None, False
        else:
            loss, aux, by_closure = _evaluate(closure, parameters, unused)
            if not by_closure:
                if reader is not None:
                    reader.note(loss)
                backward_of(loss, factor, "The closure's loss")
    if not _any_gradient(parameters):
        raise ClosureError(
            "The closure's loss does not depend on this optimizer's parameters: no gradient reached any of them; "
            "return the loss of the model whose parameters the optimizer was given."
        )
    if scale is not None and by_closure:
        raise ClosureError(
            "With loss_scale the optimizer has to run the backward pass, but the closure calls backward() itself; "
            "return the loss without calling it."
        )
    if aux is not None:  # without the graph that its tensors would keep alive
        aux = tree_map_only(Tensor, Tensor.detach, aux)
    if scale is None:
        return GradientPass(loss.detach(), aux, by_closure)
    unrounded = scale.divide(parameters)
    gradients = [unrounded.get(id(p), p.grad) for p in parameters if p.grad is not None]
    return GradientPass(loss.detach(), aux, by_closure, not scale.fits(gradients), unrounded)


def _evaluate(closure: Closure, parameters: list[Tensor], unused: Sequence[Tensor]) -> tuple[Tensor, object, bool]:
    """The closure's loss and what came beside it, and whether the closure put gradients in `.grad`."""
    if not unused:
        for parameter in parameters:
            parameter.grad = None
        loss, aux = unpack(closure())
        return loss, aux, _any_gradient(parameters)
    watches, watched = [GradientWatch(parameter) for parameter in unused], set(map(id, unused))
    others = [parameter for parameter in parameters if id(parameter) not in watched]
    for parameter in others:
        parameter.grad = None
    try:
        loss, aux = unpack(closure())
    finally:
        for watch in watches:
            watch.end()
    by_closure = _any_gradient(others) or any(watch.saw_backward for watch in watches)
    if not by_closure:
        for parameter in unused:
            parameter.grad = None
    elif any(watch.kept for watch in watches):
        refuse_addition()
    return loss, aux, by_closure


def _any_gradient(parameters: list[Tensor]) -> bool:
    """Whether there is one; a plain loop takes half of what `any` takes, in every step."""
    for parameter in parameters:  # noqa: SIM110
        if parameter.grad is not None:
            return True
    return False


def backward_of(loss: Tensor, factor: float, name: str) -> None:
    """The backward of `factor` times a loss; `name` is what an error calls that loss."""
    if not loss.requires_grad:
        raise ClosureError(
            "The closure's loss has no graph, so it has no gradient; compute it from the model's output with "
            "gradients enabled, do not detach it or call .item() on it, and leave some parameter that requires_grad."
        )
    try:
        torch.autograd.backward(loss if factor == 1.0 else loss * factor)
    except RuntimeError as error:
        if "second time" not in str(error):
            raise
        raise ClosureError(
            f"{name} has had its backward already; compute it inside of the closure and return it without calling "
            "backward(), which the optimizer does."
        ) from None


# --- trials -----------------------------------------------------------------------------------------------------------


def evaluate_trial(closure: Closure, *, with_grad: bool = False, earlier: Tensor | None = None) -> float:
    """The closure's loss at the parameters as they are, without gradients.

    Args:
        closure: What is evaluated.
        with_grad: Enable gradients: the closure runs a backward of its own.
        earlier: The loss of an evaluation before. A closure that returns the same tensor again, with its graph, where
            no graph is recorded, has evaluated nothing.
    """
    token = _in_trial.set(True)
    try:
        with torch.set_grad_enabled(with_grad):
            loss = unpack(closure())[0]
        if earlier is not None and loss.requires_grad and not with_grad and earlier.data_ptr() == loss.data_ptr():
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


# --- what a closure returns -------------------------------------------------------------------------------------------


def scalar(loss: object, name: str) -> Tensor:
    """The loss as a tensor of one number; an error calls it `name`."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
        return loss
    if isinstance(loss, (int, float)):
        return torch.tensor(float(loss), dtype=torch.float64)
    if not isinstance(loss, Tensor):
        raise ClosureError(
            f"{name} must be a scalar tensor, but it is of type {type(loss).__name__}; "
            "a closure returns the loss, or the pair (loss, anything)."
        )
    if loss.numel() == 1:
        raise ClosureError(f"{name} must be a floating-point number, but its type is {loss.dtype}; convert it.")
    raise ClosureError(
        f"{name} must be a scalar tensor, but it has shape {tuple(loss.shape)} and type {loss.dtype}; "
        "reduce it to one number, for example with .mean()."
    )


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
