"""Evaluating a closure: once with its backward, for the gradient, and as often as there are trials without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim.gradients import LossScale
from hotswap.optim.processes import local

__all__ = [
    "Closure",
    "GradientPass",
    "LossReader",
    "Request",
    "WithBackward",
    "as_trial",
    "backward_of",
    "evaluate_trial",
    "in_trial",
    "leave_trial",
    "request_of",
    "run_gradient_pass",
    "scalar",
    "unpack",
]

Closure = Callable[[], object]
"""Returns a loss, or a pair of a loss and anything."""

LIGHTNINGS, ADAPTER = "_wrap_closure", "hotswap.integrations.lightning_closures"
"""Lightning binds closures to a function of this name, with `functools.partial`; the module's function `unwrap` takes
such a closure apart. It is imported when one is met: users need not import it, and nobody else pays for it."""

_in_trial: ContextVar[bool] = ContextVar("hotswap_in_trial", default=False)


def in_trial() -> bool:
    """Whether the closure that asks is being evaluated for a trial: do not log, count or plot there."""
    return _in_trial.get()


def leave_trial(inside: bool) -> None:
    """Let `in_trial()` say what it said before a step that was interrupted in a trial."""
    _in_trial.set(inside)


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


# --- the arguments of a step ------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """The arguments of one step."""

    closure: Closure | None
    """Computes the loss for the gradient pass; None where gradients are in `.grad` already."""
    trial_closure: Closure | None
    """Computes the loss of the trials; None for the same closure."""
    loss: Tensor | float | None
    """The trial closure's loss at the start point, where it is known."""
    after_backward: Callable[[], object] | None
    """The work that a framework does between a backward and a step."""


def request_of(
    closure: object,
    trial_closure: object,
    loss: Tensor | float | None,
    search_with: tuple[Closure, Tensor | float] | None = None,
) -> Request:
    """The arguments of `step`, checked, and without what a framework has wrapped around the closure.

    Where a framework has run the backward itself, the work that it does afterwards is done here.

    Args:
        closure: As `step` got it, like the next two.
        trial_closure: See `step`.
        loss: See `step`.
        search_with: A trial closure and its loss, for a step without either closure.
    """
    if loss is not None and trial_closure is None:
        raise ClosureError(
            "step(loss=...) was called without a trial_closure: it is the trial closure's loss at the start point; "
            "pass both, or neither."
        )
    for name, function in (("closure", closure), ("trial_closure", trial_closure)):
        if function is not None and not callable(function):
            raise ClosureError(
                f"step({name}=...) must be a function that computes the loss, but it is of type "
                f"{type(function).__name__}; write optimizer.step(lambda: loss_fn(model(x), y))."
            )
    after_backward = None
    if isinstance(closure, partial) and getattr(closure.func, "__name__", "") == LIGHTNINGS:
        closure, after_backward = import_module(ADAPTER).unwrap(closure)
    if closure is None:
        if after_backward is not None:
            with torch.enable_grad():
                after_backward()
        if trial_closure is None and search_with is not None:
            trial_closure, loss = search_with
    return Request(closure, trial_closure, loss, after_backward)  # type: ignore[arg-type]  # they were checked


# --- the gradient pass ------------------------------------------------------------------------------------------------


class LossReader:
    """Reads the loss of a gradient pass without making a GPU wait: `note` it after the forward, `read` it later.

    `loss.item()` waits until everything is done that was launched before, so after a backward pass for all of it. Here
    the loss is copied to the host's memory as soon as the forward has computed it.
    """

    def __init__(self) -> None:
        self._host: Tensor | None = None
        """The copy of the loss, in memory that a GPU writes to by itself, and of the loss's own type."""
        self._events: dict[torch.device, torch.cuda.Event] = {}
        self._copied: torch.cuda.Event | None = None
        """The event that says that the copy is there; None if none was asked for."""

    def note(self, loss: Tensor) -> None:
        """Start to copy a loss that was just computed; on other devices than a GPU there is nothing to gain."""
        if not loss.is_cuda or type(loss) is not Tensor:
            return
        if self._host is None or self._host.dtype is not loss.dtype:
            self._host = torch.empty((), dtype=loss.dtype, pin_memory=True)
        device = loss.device
        if device not in self._events:
            self._events[device] = torch.cuda.Event()  # type: ignore[no-untyped-call]
        found = loss.detach()
        self._host.copy_(found if found.dim() == 0 else found.reshape(()), non_blocking=True)
        self._copied = self._events[device]
        self._copied.record(torch.cuda.current_stream(device))

    def read(self, loss: Tensor) -> float:
        """The loss as a number; the one that was noted, if one was since the last time."""
        copied, self._copied = self._copied, None
        if copied is None or self._host is None:
            return loss.item()
        copied.synchronize()
        return self._host.item()

    def forget(self) -> None:
        """Nothing will be read: the gradient pass has failed."""
        self._copied = None


class GradientPass(NamedTuple):
    """The result of the one forward and backward at the start point."""

    loss: Tensor
    """The loss, detached."""
    aux: object
    """The second value of the closure, with its tensors detached."""
    by_closure: bool
    """Whether the closure called `backward()` itself."""
    overflow: bool = False
    """Whether the loss scale was too large for the gradient."""


def run_gradient_pass(
    closure: Closure,
    parameters: list[Tensor],
    scale: LossScale | None = None,
    *,
    unused: bool = False,
    reader: LossReader | None = None,
) -> GradientPass:
    """Clear the gradients, evaluate the closure, and run its backward unless it did so itself.

    Args:
        closure: The closure.
        parameters: Those of the optimizer.
        scale: Multiplies the loss before the backward.
        unused: Whether there are gradients that no step has used. A closure that runs a backward must clear them.
        reader: Is told the loss between forward and backward; None if nobody reads it.
    """
    factor = 1.0 if scale is None else scale.value
    with torch.set_grad_enabled(True):
        if isinstance(closure, WithBackward):
            for parameter in parameters:
                parameter.grad = None
            loss, aux, by_closure = closure.backward(factor), None, False
        else:
            old = _clear(parameters, keep=unused)
            loss, aux = unpack(closure())
            by_closure = _has_gradient(parameters) if not old else _ran_backward(parameters, old)
            if not by_closure:
                if reader is not None:
                    reader.note(loss)
                backward_of(loss, factor, "The closure's loss")
    if not by_closure and not _has_gradient(parameters):
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
    return GradientPass(loss.detach(), aux, by_closure, scale is not None and not scale.divide(parameters))


def _clear(parameters: list[Tensor], *, keep: bool) -> list[tuple[Tensor, Tensor, int]]:
    """Clear the gradients; or keep them, and return each with its parameter, and how often it was written to."""
    if keep:
        return [(p, p.grad, local(p.grad)._version) for p in parameters if p.grad is not None]
    for parameter in parameters:
        parameter.grad = None
    return []


def _ran_backward(parameters: list[Tensor], old: list[tuple[Tensor, Tensor, int]]) -> bool:
    """Whether the closure ran a backward pass. If it ran none, gradients from before the step are cleared.

    Raises:
        UnsupportedError: Its backward has added to them.
    """
    known = {id(parameter): (gradient, version) for parameter, gradient, version in old}
    ran = False
    for parameter in parameters:
        gradient, version = known.get(id(parameter), (None, 0))
        if parameter.grad is not None and parameter.grad is gradient:
            part = local(parameter.grad)
            writes = part._version - version  # to clear it in place is a write of its own; FSDP writes several times
            if writes and (writes == 1 or part is not gradient) and bool(part.any()):
                raise UnsupportedError(
                    "The closure calls backward() on top of gradients that were accumulated before this step, so a "
                    "search would judge on the last minibatch only; give all of them to one step with "
                    "hotswap.accumulate, or call optimizer.zero_grad() first if those gradients are not meant."
                )
            ran = ran or writes > 1
        else:
            ran = ran or parameter.grad is not None
    if not ran:
        _clear(parameters, keep=False)
    return ran


def _has_gradient(parameters: list[Tensor]) -> bool:
    """Whether a parameter has a gradient. A plain loop takes half of the time of `any`, in every step."""
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


# --- the result of a closure ------------------------------------------------------------------------------------------


def unpack(result: object) -> tuple[Tensor, object]:
    """A closure's result as a loss and the value beside it."""
    if isinstance(result, Tensor) and result.numel() == 1 and result.is_floating_point():
        return result, None
    if not isinstance(result, tuple):
        return scalar(result, "The closure's loss"), None
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
