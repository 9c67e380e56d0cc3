"""Algorithm 1's "while not converged": when to stop, as small pure predicates, and a loop that asks them.

    from hotswap.convergence import any_of, loss_below, steps, train_until

    for progress in train_until(any_of(steps(10_000), loss_below(1e-3)), optimizer, loss_of_batch, loader):
        print(progress.steps, progress.loss, progress.record.values["lr"])

A predicate is any function from a `Progress` to a bool: write your own as a lambda.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hotswap.errors import SettingError

__all__ = [
    "Converged",
    "Progress",
    "all_of",
    "any_of",
    "epochs",
    "gradient_norm_below",
    "loss_below",
    "no_move",
    "plateau",
    "steps",
    "train_until",
]


class Stepper(Protocol):
    """An optimizer, as far as the loop needs it. `hotswap.HotSwap` is one."""

    @property
    def last_step(self) -> Any:
        """The record of the latest step."""

    @property
    def param_groups(self) -> Any:
        """Groups of parameters, as torch has them."""

    def step(self, closure: Callable[[], object], /) -> Any:
        """Search, move, and return the loss before the step."""


@dataclass
class Progress:
    """The state of training after a step. Predicates read it and change nothing."""

    steps: int = 0
    """Steps taken."""
    epochs: int = 0
    """Passes over the data that are complete."""
    still: int = 0
    """Steps in a row, up to now, in which nothing moved."""
    losses: array[float] = field(default_factory=lambda: array("d"), repr=False)
    """The minibatch loss before each step."""
    record: Any = field(default=None, repr=False)
    """The optimizer's record of the latest step."""
    gradient_norm: Callable[[], float] = field(default=lambda: math.nan, repr=False)
    """Computes the Euclidean norm of the latest gradient; a call, because it costs a pass over the parameters."""

    @property
    def loss(self) -> float:
        """The minibatch loss before the latest step; NaN before the first."""
        return self.losses[-1] if self.losses else math.nan


Converged = Callable[[Progress], bool]
Batch = TypeVar("Batch")


def steps(count: int) -> Converged:
    """After `count` steps."""
    _check_count("steps", count)
    return lambda progress: progress.steps >= count


def epochs(count: int) -> Converged:
    """After `count` passes over the data."""
    _check_count("epochs", count)
    return lambda progress: progress.epochs >= count


def loss_below(bound: float, window: int = 1) -> Converged:
    """When the mean minibatch loss of the last `window` steps is below `bound`."""
    _check_count("loss_below", window)
    if math.isnan(bound):
        raise SettingError("loss_below(nan): no loss is ever below NaN; give a number.")
    return lambda progress: progress.steps >= window and _mean(progress.losses[-window:]) < bound


def plateau(window: int, tolerance: float = 1e-3) -> Converged:
    """When the mean loss of `window` steps is not below that of the `window` before by at least `tolerance` of it.

    Minibatch losses are noisy: a window of an epoch or more says something.
    """
    _check_count("plateau", window)
    if not 0 <= tolerance < math.inf:
        raise SettingError(f"plateau(tolerance={tolerance!r}): tolerance must be finite and not negative.")

    def reached(progress: Progress) -> bool:
        if progress.steps < 2 * window:
            return False
        earlier = _mean(progress.losses[-2 * window : -window])
        return _mean(progress.losses[-window:]) > earlier - tolerance * abs(earlier)

    return reached


def gradient_norm_below(bound: float) -> Converged:
    """When the Euclidean norm of the latest gradient is below `bound`; costs a pass over the parameters each step."""
    if not bound > 0:
        raise SettingError(f"gradient_norm_below({bound!r}): the bound must be positive; a norm is never below 0.")
    return lambda progress: progress.gradient_norm() < bound


def no_move(count: int) -> Converged:
    """When the last `count` steps found no rate that lowers the loss."""
    _check_count("no_move", count)
    return lambda progress: progress.still >= count


def any_of(*predicates: Converged) -> Converged:
    """When at least one of the predicates holds."""
    return lambda progress: any(predicate(progress) for predicate in predicates)


def all_of(*predicates: Converged) -> Converged:
    """When every one of the predicates holds; at least one must be given."""
    if not predicates:
        raise SettingError("all_of(): nothing was given, which would hold at once; name at least one predicate.")
    return lambda progress: all(predicate(progress) for predicate in predicates)


def train_until(
    converged: Converged,
    optimizer: Stepper,
    objective: Callable[[Batch], object],
    batches: Iterable[Batch],
) -> Iterator[Progress]:
    """Algorithm 1: step on one batch after the other until `converged`, yielding the progress after every step.

    `objective` maps a batch to its loss, forward only. `batches` is gone through again and again, once per epoch, as a
    DataLoader or a list can be; the same `Progress` object is yielded each time.
    """
    if not callable(converged) or not callable(objective):
        raise SettingError(
            "train_until(converged, optimizer, objective, batches): the first says when to stop, such as "
            "convergence.epochs(10), and the third computes the loss of a batch; both are functions."
        )
    if not hasattr(optimizer, "last_step"):
        raise SettingError(
            f"train_until: the optimizer is of type {type(optimizer).__name__} and keeps no record of its steps; pass "
            "a hot-swapped one, such as hotswap.HotSwapSGD(model.parameters())."
        )
    progress = Progress(gradient_norm=lambda: _gradient_norm(optimizer))
    while not converged(progress):
        before = progress.steps
        for batch in batches:
            optimizer.step(lambda batch=batch: objective(batch))  # type: ignore[misc]
            progress.steps += 1
            progress.record = optimizer.last_step
            progress.losses.append(progress.record.loss_before)  # the same in all processes, which stop together
            progress.still = progress.still + 1 if progress.record.arm is None else 0
            yield progress
            if converged(progress):
                return
        if progress.steps == before:
            raise SettingError(
                "train_until: `batches` gave no batch in a whole epoch; pass something that can be gone through again "
                "(a DataLoader or a list, not a generator that is used up)."
            )
        progress.epochs += 1


def _gradient_norm(optimizer: Stepper) -> float:
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if not gradients:
        return math.nan  # before the first step: not known, so not small
    return math.sqrt(sum(float(gradient.detach().double().square().sum()) for gradient in gradients))


def _mean(numbers: array[float]) -> float:
    return math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else math.nan


def _check_count(name: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError(f"{name}({count!r}): give a whole number of at least 1.")
